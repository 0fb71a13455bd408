"""What a run's page adds to the style of reports."""

STYLE = """
.scroll { overflow-x: auto; }
.lead b { white-space: nowrap; }
.plain td.number, .plain th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.plain .why { color: var(--soft); font-size: .85rem; }
.plain td { vertical-align: top; }
.scroll .plain td:first-child, .scroll .plain th { white-space: nowrap; overflow-wrap: normal; }
.good { color: var(--insert); } .bad { color: var(--delete); }
.sum { display: flex; height: .55rem; width: 100%; min-width: 6rem; border-radius: .3rem; overflow: hidden; gap: 1px;
  background: color-mix(in srgb, var(--same) 30%, transparent); margin-top: .4rem; }
.sum i { background: var(--kind); min-width: 2px; }
.table-card { padding: .9rem 1rem; margin: .6rem 0; }
.table-card h3 { margin: 0 0 .1rem; font-size: .95rem; }
.table-card .bars { margin-top: .7rem; }
.picture { margin: 0; padding: .6rem; overflow-x: auto; }
.tree { display: block; max-width: none; }
.tree .lane { stroke: var(--soft); stroke-width: 2; } .tree .fork { stroke: var(--soft); stroke-width: 2; fill: none; }
.tree .snapshot { fill: var(--card); stroke: var(--insert); stroke-width: 2.5; }
.tree .snapshot.marked { fill: var(--insert); }
.tree .head { fill: var(--update); }
.tree text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--soft); }
.tree .lane-name { font-weight: 600; fill: var(--ink); }
.tree .snapshot-name.marked { fill: var(--ink); font-weight: 600; }
.versus {
  display: grid; grid-template-columns: 5.5rem 1fr 7rem; gap: .15rem .8rem; align-items: center; font-size: .85rem; }
.versus .track { height: .7rem; border-radius: .2rem; background: color-mix(in srgb, var(--same) 30%, transparent); }
.versus .track i { display: block; height: 100%; border-radius: .2rem; min-width: 2px; background: var(--same); }
.versus .track i.sent { background: var(--insert); }
.versus .count { text-align: right; font-variant-numeric: tabular-nums; }
.stages { display: flex; height: 1.1rem; border-radius: .3rem; overflow: hidden; gap: 2px; }
.stages i { min-width: 3px; background: var(--stage); }
.stage-0 { --stage: var(--insert); } .stage-1 { --stage: var(--update); } .stage-2 { --stage: var(--delete); }
.stage-3 { --stage: color-mix(in srgb, var(--insert) 55%, var(--ground)); }
.stage-4 { --stage: color-mix(in srgb, var(--update) 55%, var(--ground)); }
.stage-5 { --stage: color-mix(in srgb, var(--delete) 55%, var(--ground)); }
.stage-6 { --stage: var(--soft); } .stage-7 { --stage: var(--same); }
.stage-key {
  display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .85rem; color: var(--soft); margin-top: .6rem; }
.stage-key span::before { content: ""; display: inline-block; width: .65rem; height: .65rem; border-radius: .15rem;
  background: var(--stage); margin-right: .4rem; }
.trends { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: .75rem; }
.trend-card { padding: .8rem 1rem; } .trend-card b { font-variant-numeric: tabular-nums; font-weight: 600; }
.trend-card span { color: var(--soft); font-size: .85rem; float: right; }
.trend { display: block; width: 100%; height: 64px; margin-top: .5rem; }
.trend .ground { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
.trend .hover { fill: transparent; } .trend g:hover .hover { fill: var(--ink); opacity: .07; }
.trend .bar-rows { fill: var(--update); } .trend .bar-time { fill: var(--soft); }
.trend .bar-bytes { fill: var(--insert); } .trend .bar-store { fill: color-mix(in srgb, var(--soft) 70%, var(--card)); }
.trend rect[class^=bar]:not(.last) { opacity: .55; }
"""
