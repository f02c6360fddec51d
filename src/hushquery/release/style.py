"""How the page of a release looks: on a screen by day and by night, on a telephone, and on paper."""

from __future__ import annotations

__all__ = ["STYLE"]

#: The style sheet of the page.
STYLE = """
:root { color-scheme: light dark; --ink: #1b2530; --soft: #5b6773; --line: #dfe4ea; --paper: #ffffff; --tint: #f4f7fa;
  --bar: #8fb8d8; --range: #24506f; --accent: #1f6491; --alarm: #a5211b; --alarm-tint: #fdecea;
  --optin: #a34a00; --client: #0f6b5c }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #9aa6b2; --line: #2d3741; --paper: #12181e;
  --tint: #1a222a; --bar: #2f6a94; --range: #b7dcf5; --accent: #7fc1ee; --alarm: #ff9a92;
  --alarm-tint: #3a1a18; --optin: #ffb066; --client: #5fd4bf } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 60rem; padding: 2.5rem 1.5rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", sans-serif;
  overflow-wrap: anywhere }
h1 { font-size: 2.1rem; line-height: 1.2; letter-spacing: -.015em; margin: .2rem 0 1.4rem; text-wrap: balance }
h2 { font-size: 1.3rem; letter-spacing: -.01em; margin: 3rem 0 .7rem; padding-top: 1.1rem;
  border-top: 1px solid var(--line) }
h3 { font-size: 1rem; margin: 1.5rem 0 .3rem }
p { margin: .5rem 0; max-width: 44rem }
small, .over, figcaption, .soft { color: var(--soft) }
.over { font-size: .85rem; margin: 0 }
code { font: .88em/1.5 ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace }
pre { background: var(--tint); padding: .8rem 1rem; border-radius: 8px; white-space: pre-wrap; margin: .7rem 0 }
ul, ol { padding-left: 1.2rem; max-width: 44rem }
.alarm { border: 2px solid var(--alarm); background: var(--alarm-tint); color: var(--alarm); font-weight: 650;
  padding: .9rem 1.1rem; border-radius: 8px; margin: 1rem 0; max-width: none }
.promise { background: var(--tint); border-radius: 12px; padding: 1.1rem 1.3rem; margin: 1rem 0 }
.promise p { max-width: none; margin: .6rem 0 0 } .promise .alarm { margin: 0 0 1rem }
.facts { display: flex; flex-wrap: wrap; gap: .8rem 2.6rem; margin: 0 }
.facts div { display: flex; flex-direction: column-reverse }
.facts dd { margin: 0; font-size: 1.55rem; line-height: 1.25; font-weight: 600; font-variant-numeric: tabular-nums;
  color: var(--accent) }
.facts dd.weak { color: var(--alarm) }
.facts dt { font-size: .85rem; color: var(--soft) }
figure { margin: .8rem 0 }
figcaption { font-size: .88rem; margin-bottom: .5rem; max-width: 44rem }
ol.bars { list-style: none; padding: 0; margin: 0; max-width: none }
ol.bars li { display: grid; grid-template-columns: minmax(0, 17rem) minmax(0, 1fr) 11.5rem; gap: 0 1rem;
  align-items: center; padding: .16rem 0; break-inside: avoid }
.label { line-height: 1.35 }
.label .to { color: var(--soft); padding: 0 .25em }
.drawn svg { display: block; width: 100%; overflow: visible }
.doubtful .drawn { opacity: .4 } .doubtful .may { display: block; font-size: .82rem; line-height: 1.3 }
.bar { fill: var(--bar) } .range { stroke: var(--range); stroke-width: 1.5 }
.value { font-variant-numeric: tabular-nums; white-space: nowrap; text-align: right }
.value small { display: inline-block; min-width: 7rem; text-align: right; font-size: .82rem }
ol.compared .bar { opacity: .55 } ol.compared .page { display: block; font-size: .82rem; line-height: 1.3 }
ol.compared li { padding: .3rem 0 }
.value.three { display: flex; flex-direction: column; line-height: 1.35 } .value.three small { font-size: .78rem }
.apart { color: var(--alarm); font-weight: 650; font-size: .78rem }
line.optin { stroke: var(--optin); stroke-width: 1.5 } circle.optin { fill: var(--optin) }
line.client { stroke: var(--client); stroke-width: 1.5 } circle.client { fill: var(--client) }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; font-size: .85rem; color: var(--soft) }
.legend span::before { content: ""; display: inline-block; width: .7em; height: .7em; margin-right: .4em;
  border-radius: 50%; background: var(--client) }
.legend .of-optin::before { background: var(--optin) }
.legend .of-bar::before { background: var(--bar); border-radius: 2px; opacity: .55 }
#search label { display: block; font-weight: 600; margin: .4rem 0 .3rem }
#search input { font: inherit; width: 100%; max-width: 44rem; padding: .6rem .8rem; color: var(--ink);
  background: var(--tint); border: 1px solid var(--soft); border-radius: 8px }
#search input:focus-visible { outline: 3px solid var(--accent); outline-offset: 1px }
#search .soft, #search-status { font-size: .88rem }
#search-found { list-style: none; padding: 0 }
#search-found > li { border-top: 1px solid var(--line); padding: .55rem 0 }
#search-found p { margin: 0; font-weight: 600 } #search-found p, #search-found li li { display: flex; gap: 1rem;
  justify-content: space-between }
#search-found ul { list-style: none; padding: 0; margin: .15rem 0 0; font-size: .9rem; color: var(--soft) }
.much { font-variant-numeric: tabular-nums; white-space: nowrap }
.promise h2 { border: 0; margin: 0 0 .6rem; padding: 0; font-size: 1.05rem } .promise h2 small { font-weight: 400 }
ul.plain { list-style: none; padding: 0; columns: 15rem 3; column-gap: 2rem; max-width: none }
ul.plain li { break-inside: avoid }
ol.steps { list-style: none; padding: 0; max-width: none; counter-reset: step }
ol.steps > li { counter-increment: step; position: relative; padding: .9rem 0 .9rem 2.6rem;
  border-bottom: 1px solid var(--line); break-inside: avoid }
ol.steps > li:last-child { border: 0 }
ol.steps > li::before { content: counter(step); position: absolute; left: 0; top: .95rem; width: 1.7rem; height: 1.7rem;
  border-radius: 50%; background: var(--tint); color: var(--accent); font-weight: 600; text-align: center;
  line-height: 1.7rem; font-size: .9rem }
ol.steps p { margin: .15rem 0; max-width: none }
dl.pairs { display: grid; grid-template-columns: minmax(7rem, max-content) minmax(0, 1fr); gap: .25rem 1.4rem;
  margin: .6rem 0 }
dl.pairs dt { color: var(--soft) } dl.pairs dd { margin: 0 }
.gauge { height: 12px; border-radius: 6px; background: var(--tint); overflow: hidden; max-width: 44rem; margin: .6rem 0;
  border: 1px solid var(--line) }
.gauge svg { display: block; width: 100% }
@media (max-width: 640px) {
  body { padding: 1.4rem 1rem 3rem } h1 { font-size: 1.6rem }
  ol.bars li { grid-template-columns: minmax(0, 1fr) auto; padding: .35rem 0 }
  ol.bars .drawn { grid-row: 2; grid-column: 1 / -1 }
  .value small { min-width: 0; margin-left: .35rem }
  .facts { gap: .7rem 1.7rem } .facts dd { font-size: 1.3rem }
  dl.pairs { grid-template-columns: 1fr; gap: 0 } dl.pairs dd { margin-bottom: .5rem }
  ol.steps > li { padding-left: 2.2rem } }
@media print {
  :root { --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --tint: #f3f3f3; --bar: #bcd; --range: #123;
    --accent: #123; --optin: #843c00; --client: #004d40 }
  #search, noscript { display: none }
  body { font-size: 10.5pt; padding: 0; max-width: none } h2 { break-after: avoid }
  .bar, .range, .promise, .gauge { print-color-adjust: exact; -webkit-print-color-adjust: exact } }
"""
