"""Therowsofanaudit,intheirorder:whatisassumed,whatwasdoneasprescribed,whatthepaperstates."""

fromcollections.abcimportCallable
fromdataclassesimportdataclass
fromtypingimportLiteral,final

froms4q.theoryimportas_prescribed,assumptions,measured
froms4q.theoryimportstatementsassay
froms4q.theory.evidenceimportEvidence
froms4q.theory.partsimportPart

Needs=Literal["nothing","width","optimism","theorem1"]#whatapresetmustproveforastatementtobeclaimed
#Howoftenmayitfail?Never,asitisalgebra;never;forachanceRARE;forasharedeltaoftheseeds.
Kind=Literal["identity","always","rarely","delta"]


@final
@dataclass(frozen=True,slots=True)
classStatement:
"""Onelineoftheaudit."""

name:str
where:str#labelinthepaper'ssource,orwhatitisabout
needs:Needs
kind:Kind
test:Callable[[Evidence],list[Part]]#noparts:nothingtocheckinthisrun
note:str=""


def_elsewhere(e:Evidence)->list[Part]:
dele
return[]


ASSUMPTIONS=(
Statement("assumed:featuresareexact","asm:LowRank","nothing","always",assumptions.features_exact),
Statement("assumed:theradiusfits","classQ^lin","nothing","always",assumptions.radius_fits),
Statement("assumed:thevalueboundholds","classQ^all","nothing","always",assumptions.value_bound_holds),
Statement("assumed:featuresofnorm1","EqnBoundedFeatures","nothing","always",assumptions.features_bounded),
)#fmt:skip

STATEMENTS=(
Statement("prescribedridge:relativeerror","alg:Sequoia","nothing","always",as_prescribed.ridge),
Statement("prescribedwidth:relativeerror","eqn:Bonus","nothing","always",as_prescribed.width),
Statement("prescribedball:relativeerror","alg:ShermanMorrisonUpdate","nothing","always",as_prescribed.ball),
Statement("bonusinGram+prescribedridge","eqn:Bonus","nothing","always",as_prescribed.bonus_matrix),
Statement("progressatthetrigger","line:NewPolicyTrigger","nothing","always",say.trigger),
Statement("Sigma_ref=Gramofthereplay","alg:Sequoia","nothing","always",as_prescribed.sigma_ref),
Statement(
"fit=leastsquaresofitssamples","lem:EquivalenceWithLeastSquares","nothing","always",
as_prescribed.fits,
),
Statement("trajectoriescountedandplayed","alg:Sequoia","nothing","always",measured.trajectories),
Statement("replaylengthandcm_tot","alg:Sequoia","nothing","always",measured.replay_lengths),
Statement("replayweightsandn_j/m_tot","alg:Sequoia","nothing","rarely",measured.replay_weights),
Statement("Gramofafitanditsmean","sampling","nothing","rarely",measured.replayed_grams),
Statement("targetsofafitandtheirmean","sampling","nothing","rarely",measured.targets),
Statement("Gramofmainloopsanditsmean","sampling","nothing","rarely",measured.main_loop_grams),
Statement("Theorem1(a):averageregret","thm:Sequoia","theorem1","delta",say.regret),
Statement("Theorem1(b):floatsheld","thm:Sequoia","nothing","delta",say.memory),
Statement("Theorem1(b):productsastep","thm:Sequoia","nothing","identity",say.work,"counted,nottimed"),
Statement(
"Theorem2:S3Qwithoutbonus","thm:Q-learning","nothing","always",_elsewhere,
"S4QcallsS3Qwithabonus:seeTheorem3,or--algorithms3q",
),
Statement("Theorem3(a):(err+Delta)/(U+b)","thm:Q-learningExp","width","delta",say.sandwich),
Statement("Theorem3(b):E(V-V^pi)","thm:Q-learningExp","width","delta",say.promise),
Statement("fit:|phi.(theta-theta_pi)|/U","lem:Convergence2PopulationMinimizer","width","delta",say.fit),
Statement("bonusb/U","lem:BonusBound","width","delta",say.bonus),
Statement("near-optimism:Q-Q*+errorstogo","lem:Optimism","optimism","delta",say.optimism),
Statement("near-optimismatthestart","lem:Optimism","optimism","delta",say.optimism_at_start),
Statement("replayedregretofanS3Qcall","lem:PhasedRegret","nothing","delta",say.replays),
Statement("ellipticpotential","lem:EllipticPotential","theorem1","delta",say.potential),
Statement("phases","lem:NumberOfPhases","theorem1","delta",say.number_of_phases),
Statement("expectedoverseenprogress","lem:ProportionalEstimate","theorem1","delta",say.proportional),
Statement("covarianceoveritsmean","prop:ConcentrationRegularizedCovariance","theorem1","delta",say.matrix),
Statement("logdeterminants","lem:LogDet","theorem1","delta",say.log_det),
Statement("informationgainofaphase","LemInfoGain","nothing","identity",say.information_gain),
Statement("informationgathered,anditscap","BoundonInformationGain","nothing","always",say.information_cap),
Statement("erroridentity","proofofthm:Q-learning","nothing","identity",say.error_identity),
Statement("recursion=leastsquares","lem:EquivalenceWithLeastSquares","nothing","identity",say.least_squares),
Statement("samplesofalevel","lem:OrderOfUpdates","nothing","always",say.sample_count),
Statement("excesslossidentity","lem:ExcessLoss","nothing","identity",say.excess_loss),
Statement("excessriskofthefit","lem:Sigma2ERM","nothing","identity",say.excess_risk),
)#fmt:skip
