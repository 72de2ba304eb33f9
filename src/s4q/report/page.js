(function () {
  "use strict";
  var root = document.documentElement, button = document.getElementById("scheme");
  function dark() {
    return root.dataset.scheme ? root.dataset.scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function name() { button.textContent = dark() ? "Light" : "Dark"; }
  button.hidden = false;
  button.addEventListener("click", function () { root.dataset.scheme = dark() ? "light" : "dark"; name(); });
  name();
})();
