"""Words that carry no topic, a list a language: not indexed, and the evidence for a text's language.

English is the classic list of Snowball and Postgres; the others hold the function words of their
language: articles, pronouns, prepositions, conjunctions, auxiliaries.
"""

from __future__ import annotations

from typing import Final

ENGLISH = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
itself they them their theirs themselves what which who whom this that these those am is are was were be been being have
has had having do does did doing a an the and but if or because as until while of at by for with about against between
into through during before after above below to from up down in out on off over under again further then once here there
when where why how all any both each few more most other some such no nor not only own same so than too very s t can will
just don should now ie eg
i'm you're he's she's it's we're they're i've you've we've they've i'd you'd he'd she'd we'd they'd i'll you'll he'll
she'll we'll they'll isn't aren't wasn't weren't hasn't haven't hadn't doesn't don't didn't won't wouldn't shan't
shouldn't can't cannot couldn't mustn't let's that's who's what's here's there's when's where's why's how's
"""

GERMAN = """
aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus bei beim bin
bis bist da damit dann das dass daß dasselbe dazu dein deine deinem deinen deiner dem den denn der deren derer derselbe
des dessen dich die dies diese dieselbe dieselben diesem diesen dieser dieses dir doch dort du durch ein eine einem einen
einer eines einige einigem einigen einiger er es etwas euch euer eure eurem euren eurer für gegen gewesen hab habe haben
hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres im in indem ins ist jede jedem jeden
jeder jedes jene jenem jenen jener jetzt kann kein keine keinem keinen keiner können könnte man manche manchem manchen
mein meine meinem meinen meiner mich mir mit muss müssen nach nicht nichts noch nun nur ob oder ohne sehr sein seine
seinem seinen seiner seines seit selbst sich sie sind so solche solchem solchen solcher soll sollte sondern sonst über um
und uns unser unsere unserem unseren unter vom von vor während war waren warum was weil welche welchem welchen welcher
welches wenn wer werden werde wie wieder wir wird wo wurde wurden würde würden zu zum zur zwar zwischen
"""

FRENCH = """
à ai aient ainsi alors au aucun aucune aura auront aussi autre autres aux avaient avait avant avec avez avoir avons ayant
c car ce ceci cela celle celles celui ces cet cette ceux chaque chez comme comment d dans de depuis des donc dont du elle
elles en encore entre est et étaient étais était étant été être eu eux il ils j je l la là le les leur leurs lors lorsque
lui m ma mais me même mêmes mes moi mon n ne ni nos notre nous on ont ou où par parce pas pendant peu peut plus pour
pourquoi près qu quand que quel quelle quelles quels qui quoi s sa sans se sera seront ses si soit son sont sous suis sur
t ta te tes toi ton tous tout toute toutes très tu un une vos votre vous y
"""

SPANISH = """
a al algo algunas algunos ambos ante antes aquel aquella aquellos así aún aunque bajo bien cada casi como cómo con contra
cual cuál cuales cuando cuándo cuánto cuya cuyo de del desde donde dónde dos durante e el él ella ellas ellos en entre era
eran eres es esa esas ese eso esos esta está estaba estaban están estar estas este esto estos fue fueron ha había habían
haber han has hasta hay he hemos la las le les lo los más me mi mí mientras mis mucho muchos muy nada ni no nos nosotros
nuestra nuestro o os otra otras otro otros para pero poco por porque pues que qué quien quién quienes se sea ser será si
sí sido sin sino sobre son soy su sus suya suyo también tampoco tan tanto te tiene tienen todas todo todos tu tú tus un
una unas uno unos usted y ya yo
"""

ITALIAN = """
a abbia abbiamo ad agli ai al alcuni alla alle allo anche ancora avere aveva avevano avuto c che chi ci co coi col come
con contro cosa così cui d da dagli dai dal dalla dalle dallo degli dei del dell della delle dello dentro di dopo dove due
e è ed era erano essere fa fino fra gli ha hai hanno ho i il in io l la le lei li lo loro lui ma me mentre mi mia mie miei
mio molto ne negli nei nel nell nella nelle nello noi non nostra nostro o ogni oltre per perché però più poi prima qual
quale quali quando quanto quasi quel quella quelle quelli quello questa queste questi questo qui se sei senza si sia
siamo siano sono sopra sotto sta stata stati stato su sua sue sugli sui sul sulla sulle suo suoi tra tu tua tuo tutte
tutti tutto un una uno v vi voi
"""

PORTUGUESE = """
a à ainda algum alguma ao aos apenas após aquela aquele aqueles aquilo as às assim até cada com como contra da das de dela
dele deles depois desde dessa desse desta deste do dos e é ela elas ele eles em então entre era eram essa essas esse esses
esta está estão estas estava este estes eu foi foram há isso isto já lhe lhes mais mas me mesmo meu minha muito muitos na
nas não nem nenhum nessa nesse nesta neste no nos nós nossa nosso num numa o onde os ou outra outras outro outros para
pela pelas pelo pelos pode podem por porque porém qual quais quando quanto que quem se seja sem sempre ser será seu seus
sido só sob sobre somos sua suas são também tanto te tem têm ter teu tinha toda todas todo todos tu tua um uma umas uns
você vocês
"""

DUTCH = """
aan al alle alles als altijd andere ben bij daar dan dat de der deze die dit doch doen door dus een eens en er ge geen
geweest haar had hadden heb hebben heeft hem het hier hij hoe hun iemand iets ik in is ja je jij jou jouw jullie kan kon
kunnen maar me meer men met mij mijn moet moeten na naar niet niets nog nu of om omdat onder ons onze ook op over reeds
sinds te tegen toch toen tot tussen u uit uw van veel voor waar want waren was wat wel welke werd werden wie wij wil
worden wordt ze zich zij zijn zo zoals zonder zou zouden
"""

STOP_WORDS: Final[dict[str, frozenset[str]]] = {
    "english": frozenset(ENGLISH.split()),
    "german": frozenset(GERMAN.split()),
    "french": frozenset(FRENCH.split()),
    "spanish": frozenset(SPANISH.split()),
    "italian": frozenset(ITALIAN.split()),
    "portuguese": frozenset(PORTUGUESE.split()),
    "dutch": frozenset(DUTCH.split()),
}
