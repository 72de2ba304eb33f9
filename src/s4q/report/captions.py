"""The text below each picture of the page that is the same for every run."""

PROMISE = (
    "A policy promises what its optimistic value says of the start. Returns above a promise are luck, or a value bound "
    "that is too small. Early promises may lie above the picture. Marks on the axis show where phases "
    "ended."
)
REGRET = (
    "Regret is what all episodes together fell short of the best policy, replay included. A run that learns bends away "
    "from the line of random actions."
)
NO_BOUND = " The preset proves no bound on it."
PHASES = (
    "A phase ends when some direction of the features has enough new data. Long phases at the end mean that little is "
    "new."
)
POLICY = (
    "Arrows show the action, colours the exact value. In each cell: the step at which the policy is there most often. "
    "Empty cells are never visited, or are walls."
)
POLICY_BY_ROWS = "Arrows show where the action leads, colours the exact value. The row is the step."
VALUE = "What the policy to keep promises from the first step on, by two numbers of the observation."
OTHERS_IN_THE_MIDDLE = " The other numbers stand in the middle of their ranges."
INFORMATION = (
    "The log determinant of all feature products, over the ridge. Only new directions make it grow, so it limits the "
    "number of phases."
)
BONUS = "What is still optimism in the newest value, along the newest policy. It falls with the visits."
