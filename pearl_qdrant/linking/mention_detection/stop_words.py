"""English words that a mention does not start or end with, or does not consist of. Written for this project.

Other languages work without lists: they get more candidate spans, which the base then rejects.
"""

from __future__ import annotations

ARTICLES = frozenset("a an the".split())
"""May start a capitalised name."""

CONNECTORS = frozenset(
    "a an the of in and or for to with by on at from as into de del della der des di da du la le les el los las van von"
    " und et y al ibn bin zu zum zur am im den dem das die s n".split()
)
"""May stand inside a mention, in lower case."""

_FUNCTION = """
i me my mine myself we us our ours ourselves you your yours yourself he him his himself she her hers herself it its
itself they them their theirs themselves this that these those who whom whose which what where when why how whether
am is are was were be been being has have had having do does did doing done will would shall should can could may might
must ought not no nor neither either both but if then else than so such too very just only also even still yet already
again ever never always often sometimes usually once twice soon later early earlier now here there thus hence therefore
however although though because since while until unless before after during about above below over under between among
amid against through throughout across along around behind beyond within without toward towards upon off out up down
back away near per via like unlike despite except besides instead rather quite almost nearly perhaps maybe indeed
all any each every few many more most much several some same other others another own one ones two three four five six
seven eight nine ten first second third last next another less least enough else
t s d ll re ve m don doesn didn isn aren wasn weren won wouldn couldn shouldn hasn haven hadn
ago well together apart especially mainly mostly largely simply really
"""

_VERBS = """
say says said saying tell tells told ask asks asked go goes went gone going come comes came coming get gets got getting
make makes made making take takes took taken taking give gives gave given giving find finds found finding know knows
knew known see sees saw seen seeing think thinks thought want wants wanted use uses used using work works worked working
call calls called calling try tries tried trying need needs needed feel feels felt become becomes became leave leaves
left leaving put puts keep keeps kept let lets begin begins began begun seem seems seemed help helps helped helping show
shows showed shown showing hear hears heard play plays played playing run runs ran running move moves moved moving live
lives lived living believe believes believed bring brings brought happen happens happened write writes wrote written
writing provide provides provided sit sits sat stand stands stood lose loses lost pay pays paid meet meets met include
includes included including continue continues continued set sets learn learns learned change changes changed lead leads
led understand understood watch watches watched follow follows followed following stop stops stopped create creates
created speak speaks spoke spoken read reads allow allows allowed add adds added spend spends spent grow grows grew
grown open opens opened walk walks walked win wins won offer offers offered remember remembers remembered consider
considers considered appear appears appeared buy buys bought wait waits waited serve serves served die dies died send
sends sent expect expects expected build builds built stay stays stayed fall falls fell fallen cut cuts reach reaches
reached kill kills killed remain remains remained suggest suggests suggested raise raises raised pass passes passed sell
sells sold require requires required report reports reported decide decides decided pull pulls pulled return returns
returned explain explains explained hope hopes hoped develop develops developed carry carries carried break breaks broke
broken receive receives received agree agrees agreed support supports supported hit hits produce produces produced eat
eats ate eaten cover covers covered catch catches caught draw draws drew drawn choose chooses chose chosen cause causes
caused join joins joined visit visits visited
"""

_ADJECTIVES = """
new old good bad better best worse worst big small large little long short high low great young important different
early late able public real sure free full possible whole certain clear main recent major likely strong easy hard
common similar available ready final general simple current several various usual
"""

_NOUNS = """
time times year years day days week weeks month months way ways people person man men woman women child children thing
things world life lives hand hands part parts place places case cases point points company companies number numbers
group groups problem problems fact facts home house room area areas money story stories lot right rights study studies
book books eye eyes job jobs word words business issue issues side sides kind kinds head service services friend friends
father mother family power hour hours minute minutes game games line lines end ends member members law laws car cars
city cities name names team teams school student students country countries state states government program system
question questions night morning evening afternoon half quarter moment reason reasons result results idea ideas body
information level office door health history party change age policy process music market sense nation plan plans
hundred hundreds thousand thousands million millions billion billions dozen dozens
"""

STOP_WORDS = CONNECTORS | frozenset(_FUNCTION.split()) | frozenset(_VERBS.split())
"""A mention does not start or end with one of these, unless it is capitalised as a name."""

COMMON_WORDS = STOP_WORDS | frozenset(_ADJECTIVES.split()) | frozenset(_NOUNS.split())
"""A mention does not consist of one of these alone, unless it is capitalised as a name."""

ROLES = frozenset(
    """
mr mrs ms miss dr prof sir dame lord lady madam rev reverend father sister brother saint st hon president vice prime
premier minister chancellor governor mayor senator congressman congresswoman representative rep sen gov judge justice
ambassador secretary king queen prince princess emperor empress pope bishop archbishop cardinal general gen colonel col
captain capt major lieutenant lt sergeant sgt corporal private admiral commander marshal officer chief chairman
chairwoman director professor doctor coach manager player striker goalkeeper defender midfielder pitcher skipper
champion actor actress singer author writer poet painter former late commissioner spokesman spokeswoman deputy envoy
patriarch rabbi analyst economist editor columnist correspondent lawyer attorney inspector sheriff treasurer founder
""".split()
)
"""Titles and roles, which stand beside a name and are no part of it."""

DATES = frozenset(
    """
monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september
october november december
""".split()
)
"""Words that are no part of a name beside them: Florida May 14."""

HAN_PARTICLES = frozenset("的了是在和与也不有就都而及或但被把对从为这那其之以于他她它们我你很还又再着过吗呢吧啊")
"""Characters that a Chinese name rarely starts or ends with."""
