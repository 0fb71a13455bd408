"""The style of the HTML report: light and dark, on a phone and on paper. Nothing is loaded from anywhere."""

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #faf8f4; --card: #ffffff; --ink: #22303a; --soft: #687781; --line: #e6e1d7;
  --insert: #21867c; --update: #c08416; --delete: #bf4f47; --same: #d3cdc0;
  --insert-wash: #e3f1ee; --update-wash: #faf0db; --delete-wash: #f9e6e3;
  --mono: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --ground: #10171b; --card: #172026; --ink: #dfe6e8; --soft: #8fa0a8; --line: #26333a;
    --insert: #52bcae; --update: #dfa844; --delete: #e6837a; --same: #37454d;
    --insert-wash: #15322f; --update-wash: #332a17; --delete-wash: #3a2321;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 3rem; }
h1 { font-size: 1.75rem; line-height: 1.2; font-weight: 650; margin: .2rem 0 .5rem; letter-spacing: -.01em; }
h2 { font-size: 1.05rem; font-weight: 650; margin: 2.75rem 0 .9rem; }
h2 small { font-weight: 400; color: var(--soft); font-size: .875rem; margin-left: .5rem; }
p { margin: .4rem 0; }
a { color: var(--insert); text-underline-offset: .15em; }
.soft, .note { color: var(--soft); }
.note { font-size: .875rem; }
.mark { display: flex; align-items: center; gap: .5rem; color: var(--soft); font-size: .875rem; }
.mark svg { width: 1.9rem; height: .8rem; stroke: var(--insert); fill: none; stroke-width: 2; stroke-linecap: round; }
.ends { overflow-wrap: anywhere; }
.lead { max-width: 46rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
.insert { --kind: var(--insert); --wash: var(--insert-wash); }
.update { --kind: var(--update); --wash: var(--update-wash); }
.delete { --kind: var(--delete); --wash: var(--delete-wash); }
.same { --kind: var(--same); --wash: transparent; }

.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr));
  gap: .75rem; margin: 1.75rem 0 .9rem;
}
.tile { padding: .9rem 1rem .8rem; border-top: 3px solid var(--kind); }
.tile b { display: block; font-size: 1.7rem; line-height: 1.2; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile.zero b { color: var(--soft); font-weight: 400; }
.tile span { color: var(--soft); font-size: .9rem; }
.shares { display: flex; height: .55rem; border-radius: .3rem; overflow: hidden; gap: 2px; }
.shares i { background: var(--kind); min-width: 3px; }

.strip { margin: 0; padding: 1.1rem 1rem .75rem; }
.strip svg { display: block; width: 100%; height: 150px; }
.strip .i { fill: var(--insert); } .strip .u { fill: var(--update); } .strip .d { fill: var(--delete); }
.strip .water { stroke: var(--soft); stroke-width: 1; vector-effect: non-scaling-stroke; opacity: .55; }
.strip .hover { fill: transparent; } .strip g:hover .hover { fill: var(--ink); opacity: .07; }
.axis {
  display: flex; justify-content: space-between; gap: 1rem;
  color: var(--soft); font-size: .8rem; margin-top: .4rem;
}
.axis span { overflow-wrap: anywhere; }
.legend {
  display: flex; flex-wrap: wrap; gap: .2rem 1.1rem;
  font-size: .8rem; color: var(--soft); margin-bottom: .6rem;
}
.legend span::before {
  content: ""; display: inline-block; width: .65rem; height: .65rem; border-radius: .15rem;
  background: var(--kind); margin-right: .4rem;
}

.bar {
  display: grid; grid-template: "name track count" / minmax(5rem, 15rem) 1fr minmax(3.5rem, auto);
  gap: 0 .9rem; align-items: center; padding: .2rem 0;
}
.bar .name { grid-area: name; } .bar .track { grid-area: track; } .bar .count { grid-area: count; }
.bar .name { font-family: var(--mono); font-size: .85rem; overflow-wrap: anywhere; }
.bar .track { height: .7rem; border-radius: .2rem; background: color-mix(in srgb, var(--same) 30%, transparent); }
.bar .track i { display: block; height: 100%; border-radius: .2rem; background: var(--update); min-width: 2px; }
.bar .count { text-align: right; font-variant-numeric: tabular-nums; font-size: .875rem; }
details { margin-top: .7rem; } summary { cursor: pointer; color: var(--soft); font-size: .875rem; }
details .bars { margin-top: .6rem; }

.example { margin: .6rem 0; overflow: hidden; border-left: 3px solid var(--kind); }
.example h3 {
  margin: 0; padding: .5rem .9rem; font: 600 .875rem/1.5 var(--mono); overflow-wrap: anywhere;
}
.example h3 .k { color: var(--soft); font-weight: 400; }
.example table { width: 100%; border-collapse: collapse; table-layout: fixed; font-size: .875rem; }
.example td, .example th {
  padding: .35rem .9rem; border-top: 1px solid var(--line);
  vertical-align: top; text-align: left;
}
.example th { font: 400 .85rem/1.6 var(--mono); color: var(--soft); width: 28%; overflow-wrap: anywhere; }
.v {
  font-family: var(--mono); font-size: .85rem; text-decoration: none; overflow-wrap: anywhere; white-space: pre-wrap;
  padding: .05rem .3rem; border-radius: .2rem; box-decoration-break: clone; -webkit-box-decoration-break: clone; }
del.v { background: var(--delete-wash); } ins.v { background: var(--insert-wash); }
del.v mark { background: color-mix(in srgb, var(--delete) 35%, transparent); color: inherit; border-radius: .15rem; }
ins.v mark { background: color-mix(in srgb, var(--insert) 35%, transparent); color: inherit; border-radius: .15rem; }
.v.null { color: var(--soft); font-style: italic; }
.flow { padding: 0 .9rem .6rem; display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; font-size: .875rem; }
.flow span { overflow-wrap: anywhere; max-width: 100%; } .flow b { font: 400 .85rem var(--mono); color: var(--soft); }
.more { padding: .3rem .9rem .5rem; color: var(--soft); font-size: .85rem; }

.facts {
  display: grid; grid-template-columns: minmax(9rem, auto) 1fr;
  gap: .3rem 1.4rem; padding: .9rem 1rem; margin: 0;
}
.facts dt { color: var(--soft); } .facts dd { margin: 0; overflow-wrap: anywhere; }
.plain { width: 100%; border-collapse: collapse; font-size: .9rem; }
.plain th { text-align: left; font-weight: 400; color: var(--soft); }
.plain td, .plain th { padding: .45rem 1rem; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
.plain tr:last-child td { border-bottom: 0; } .plain code { font-family: var(--mono); font-size: .85rem; }
.warning {
  margin: 1.25rem 0 0; padding: .7rem 1rem; background: var(--update-wash); border-left: 3px solid var(--update);
  border-radius: .3rem; overflow-wrap: anywhere; }
footer {
  margin-top: 3rem; padding-top: 1rem;
  border-top: 1px solid var(--line); color: var(--soft); font-size: .8rem;
}

@media (max-width: 34rem) {
  main { padding: 1.5rem 1rem 2rem; } h1 { font-size: 1.4rem; } h2 { margin-top: 2.1rem; }
  .tiles { grid-template-columns: 1fr 1fr; gap: .6rem; } .tile b { font-size: 1.4rem; }
  .strip svg { height: 110px; }
  .bar { grid-template: "name count" "track track" / 1fr auto; row-gap: .2rem; padding: .35rem 0; }
  .example th { display: block; width: auto; padding-bottom: 0; }
  .example td { display: block; border-top: 0; padding: .15rem .9rem .35rem; }
  .example td + td { padding-top: 0; } .example td + td::before { content: "→ "; color: var(--soft); }
  .plain td { padding: .4rem .6rem; }
  .facts { grid-template-columns: 1fr; gap: 0; } .facts dd { margin-bottom: .5rem; }
}
@media print {
  :root { --ground: #fff; --card: #fff; --ink: #000; --soft: #555; --line: #ccc; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { font-size: 11pt; } main { max-width: none; padding: 0; }
  .tile, .strip, .example, .facts { break-inside: avoid; } h2 { break-after: avoid; }
}
"""
