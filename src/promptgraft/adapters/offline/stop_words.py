"""English words that say nothing about what a text is about."""

from __future__ import annotations

_WORDS = """
a able about above across actually after again against ago ain all almost alone along already also
although always am among an and another any anybody anyone anything anyway are aren around as ask
asked asking asks at away back be became because become been before being below best better
between big both but by bye call called came can cannot cause certain come comes coming could
couldn couple cos day days dear did didn different do does doesn doing don done down due during
each either else end enough etc even ever every everybody everyone everything exactly far few find
first five for found four from full further gave get gets getting give given gives giving go goes
going gone good got great had hadn happen happened happening happens hardly has hasn have haven
having he hello help her here hers herself hey hi him himself his hope how however i if im in
indeed instead into is isn it its itself just keep keeps kept kind knew know known knows last late
later least left less let lets like likely ll little long longer look looked looking looks lot
made make makes making many matter may maybe me mean means meant might mine minute minutes month
months more most much must my myself name namely near nearly need needed needs neither never new
next nice no nobody none nor not nothing now of off often ok okay old on once one only onto or
other others otherwise ought our ours ourselves out over own part past per perhaps place please
point possible probably put quite rather re real really reason regards right said same saw say
saying says second see seem seems seen sent several shall she should shouldn show shown shows
since six so some somebody somehow someone something sometimes soon sort sorry start started still
stop stopped such sure take taken takes taking tell ten th than thank thanks that the their theirs
them themselves then there these they thing things think third this those though thought three
through time times to today together told tomorrow too took toward towards tried tries try trying
turn turned twice two under unless until up upon us use used uses using usual usually ve very via
want wanted wants was wasn way ways we week weeks well went were weren what whatever when whenever
where whether which while who whoever whole whom whose why will wish with within without won
wonder word words work worked working works would wouldn write wrote year years yes yesterday yet
you your yours yourself yourselves
"""

STOP_WORDS = frozenset(_WORDS.split())
