"""What the page of `html_report` looks like."""

from keras_compembed.reports.size_parts import PART_NAMES

# Of each part of a model: in light, in dark.
_COLOURS = (
    ("#0b6e99", "#4db3de"),
    ("#e08214", "#f0a24a"),
    ("#2a8f6d", "#56c39d"),
    ("#9a5fb5", "#c193da"),
    ("#4a69bd", "#8ba6ee"),
    ("#c2a000", "#e0c64c"),
    ("#b5485d", "#e38a9c"),
    ("#8c8c8c", "#9a9a9a"),
    ("#6d8b74", "#9dbca5"),
    ("#8a5a44", "#c49a84"),
    ("#c9cdd1", "#4a5157"),
)
PART_CLASSES = {name: f"p{x}" for x, name in enumerate(PART_NAMES)}


def _variables(shade):
    return "".join(
        f"--p{place}:{pair[shade]};" for place, pair in enumerate(_COLOURS)
    )


_FILLS = "".join(
    f".p{place}{{fill:var(--p{place});background:var(--p{place})}}"
    for place in range(len(_COLOURS))
)

STYLE = f"""
:root{{color-scheme:light dark;--back:#fff;--text:#1c2126;--soft:#5b646d;
--edge:#dfe3e7;--card:#f5f7f9;--main:#0b6e99;--warm:#c4650a;
--mark:#d8ecf5;{_variables(0)}}}
@media screen and (prefers-color-scheme:dark){{:root{{--back:#14181c;
--text:#e6eaee;--soft:#9aa5af;--edge:#2e353c;--card:#1c2227;--main:#4db3de;
--warm:#f0a24a;--mark:#123f54;{_variables(1)}}}}}
*{{box-sizing:border-box}}
body{{margin:0 auto;padding:24px 20px 60px;max-width:980px;
background:var(--back);color:var(--text);overflow-wrap:anywhere;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}}
h1{{font-size:1.7rem;line-height:1.2;margin:0 0 4px}}
h2{{font-size:1.2rem;margin:44px 0 6px;padding-top:14px;
border-top:1px solid var(--edge)}}
h3{{font-size:1rem;margin:26px 0 6px}}
p{{margin:6px 0 12px;max-width:44em}}
.soft,.note{{color:var(--soft)}}
.note{{font-size:.875rem}}
.cards{{display:grid;gap:12px;margin:20px 0 0;
grid-template-columns:repeat(auto-fit,minmax(150px,1fr))}}
.card{{background:var(--card);border:1px solid var(--edge);border-radius:8px;
padding:12px 14px}}
.card b{{display:block;font-size:1.45rem;line-height:1.25}}
.card span{{color:var(--soft);font-size:.875rem}}
.size{{margin:14px 0}}
.size .head{{display:flex;flex-wrap:wrap;column-gap:12px;
justify-content:space-between}}
svg.bar{{display:block;width:100%;height:20px;margin:3px 0;
background:var(--card);border-radius:3px}}
.legend{{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:.875rem;
color:var(--soft)}}
.legend i{{display:inline-block;width:.75em;height:.75em;border-radius:2px;
margin-right:6px;print-color-adjust:exact;-webkit-print-color-adjust:exact}}
{_FILLS}
svg.chart{{display:block;width:100%;height:auto;margin:10px 0}}
svg.chart.narrow{{display:none}}
@media (max-width:620px){{svg.chart.wide{{display:none}}
svg.chart.narrow{{display:block}}}}
.chart text{{font-size:12px;fill:var(--soft)}}
.chart text.strong{{fill:var(--text);font-weight:600;stroke:var(--back);
stroke-width:4px;paint-order:stroke}}
.chart .grid{{stroke:var(--edge)}}
.chart .line{{fill:none;stroke:var(--main);stroke-width:1.5}}
.chart .other{{fill:var(--soft);fill-opacity:.45}}
.chart .best{{fill:var(--main)}}
.chart .chosen{{fill:var(--back);stroke:var(--main);stroke-width:3}}
.chart .model{{fill:var(--warm);stroke:var(--back);stroke-width:1.5}}
.chart .upright{{stroke-width:1.5;stroke-dasharray:4 4}}
.chart .limit{{stroke:var(--soft)}}
.chart .model.upright{{stroke:var(--warm)}}
svg.balance{{display:block;width:100%;background:var(--card);
fill:var(--main);shape-rendering:crispEdges}}
.scroll{{overflow-x:auto}}
table{{border-collapse:collapse;width:100%;font-size:.9375rem;
font-variant-numeric:tabular-nums;overflow-wrap:normal}}
th,td{{text-align:right;padding:5px 10px;border-bottom:1px solid var(--edge);
white-space:nowrap}}
th{{font-weight:600;color:var(--soft);white-space:normal;vertical-align:bottom}}
th:first-child,td:first-child{{text-align:left;padding-left:0}}
td.wide,th.wide{{text-align:left;white-space:normal;overflow-wrap:anywhere;
min-width:10em}}
tr.chosen td{{font-weight:600}}
.near{{display:grid;grid-template-columns:minmax(90px,1fr) 3fr 3fr 3.2em;
gap:2px 16px;font-size:.9375rem}}
.near>*{{padding:4px 0}}
.near .row{{display:contents}}
.near .row>*{{border-top:1px solid var(--edge);padding:5px 0}}
.near .word{{font-weight:600}}
.near .head{{display:contents;color:var(--soft);font-weight:600}}
.near .kept{{text-align:right;font-variant-numeric:tabular-nums}}
.near.alone{{grid-template-columns:minmax(90px,1fr) 5fr}}
mark{{background:var(--mark);color:inherit;border-radius:3px;padding:0 3px;
print-color-adjust:exact;-webkit-print-color-adjust:exact}}
.group{{margin:4px 0}}
code{{font:.875em ui-monospace,Menlo,Consolas,monospace}}
summary{{cursor:pointer;color:var(--main)}}
@media (max-width:620px){{
table{{font-size:.8125rem}}
th,td{{padding:5px 4px}}
td.wide,th.wide{{min-width:6em}}
.near,.near.alone{{display:block}}
.near .head{{display:none}}
.near .row{{display:block;border-top:1px solid var(--edge);padding:6px 0}}
.near .row>*{{border:0;padding:0}}
.near .row>[data-name]::before{{content:attr(data-name);color:var(--soft);
font-size:.8125rem;margin-right:8px}}
.near .kept{{text-align:left}}}}
@media print{{:root{{color-scheme:light}}
body{{max-width:none;padding:0;font-size:11pt}}
details::details-content{{content-visibility:visible;block-size:auto}}
details>summary{{display:none}}
.size,.card,.group,tr,.near .row>*,svg{{break-inside:avoid}}
h2,h3{{break-after:avoid}}}}
"""
