"""The status page's style sheet: readable on a phone and a desktop, by day and by night, printed or in a terminal."""

from __future__ import annotations

import base64
import hashlib

CSS = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--line:#e1e5ea;--ink:#14181d;--dim:#5b6673;--link:#0b5cad;
--good:#12703c;--good-bg:#e2f5e9;--warn:#8a5300;--warn-bg:#fff2d9;--bad:#ad1620;--bad-bg:#fde5e6}
@media(prefers-color-scheme:dark){:root{--bg:#0f1216;--card:#181d23;--line:#2b323b;--ink:#e9edf2;--dim:#98a4b2;
--link:#7db7f5;--good:#74d69c;--good-bg:#12301f;--warn:#f2bf5e;--warn-bg:#352708;--bad:#ff8b90;--bad-bg:#3d1417}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:16px}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
header{display:flex;flex-wrap:wrap;gap:4px 12px;align-items:center;margin:4px 0 14px}
h1{font-size:22px;margin:0;letter-spacing:-.01em}h1 a{color:inherit}
h2{font-size:16px;margin:26px 0 8px}h2 small,header small{font-weight:400;color:var(--dim);font-size:13px}
header small{margin-left:auto}
.chip{display:inline-block;border-radius:99px;padding:1px 10px;font-size:13px;font-weight:600;white-space:nowrap}
.good{color:var(--good);background:var(--good-bg)}.warn{color:var(--warn);background:var(--warn-bg)}
.bad{color:var(--bad);background:var(--bad-bg)}.plain{color:var(--dim);background:var(--bg)}
.who{display:inline-flex;gap:10px;align-items:center}.who form{display:inline}
button{font:inherit;font-weight:600;color:#fff;background:#0b5cad;border:0;border-radius:8px;padding:9px 18px;
cursor:pointer}
button.link{font-weight:400;color:var(--link);background:none;padding:0}button.link:hover{text-decoration:underline}
form.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 20px;max-width:460px}
form.card h2{margin:0 0 12px}form.card p{color:var(--dim);font-size:13px;margin:12px 0}
label{display:block;color:var(--dim);font-size:13px;margin-bottom:4px}p.dim{color:var(--dim);font-size:13px}
input{width:100%;font:14px/1.4 ui-monospace,SFMono-Regular,Menlo,monospace;color:inherit;background:var(--bg);
border:1px solid var(--line);border-radius:8px;padding:9px 10px}
:focus-visible{outline:2px solid var(--link);outline-offset:1px}
ul.look{list-style:none;margin:0 0 16px;padding:0;border-radius:10px;overflow:hidden}
ul.look li{padding:9px 14px;overflow-wrap:anywhere}ul.look small{display:block;color:inherit;opacity:.85}
.wrap+ul.look{margin-top:10px}ul.look li+li{border-top:1px solid var(--line)}
dl.tiles{display:grid;grid-template-columns:repeat(4,1fr);gap:10px;margin:0}
dl.tiles div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 12px;
display:flex;flex-direction:column-reverse;justify-content:flex-end}
dt{color:var(--dim);font-size:13px}dd{margin:0;white-space:nowrap;font-size:21px;font-weight:650;font-variant-numeric:tabular-nums}
dl.tiles .warn,dl.tiles .bad{border-color:currentColor}dl.tiles .warn dt,dl.tiles .bad dt{color:inherit}
.wrap{background:var(--card);border:1px solid var(--line);border-radius:10px;overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:7px 14px;vertical-align:top}
th{color:var(--dim);font-weight:500;font-size:13px;white-space:nowrap}
tbody tr{border-top:1px solid var(--line)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.k{overflow-wrap:anywhere;min-width:9em}td.c{font-family:ui-monospace,SFMono-Regular,Menlo,monospace;font-size:13.5px}
td.t{white-space:nowrap}
td.late{color:var(--warn);font-weight:650}
p.none{margin:0;padding:10px 14px;color:var(--dim)}
footer{margin:28px 0 12px;color:var(--dim);font-size:13px}
@media(max-width:680px){main{padding:12px}header small{margin-left:0;width:100%}
dl.tiles{grid-template-columns:repeat(2,1fr);gap:8px}
table,tbody,tr,td{display:block}thead{display:none}tbody tr{padding:7px 0}
td,td.n{display:flex;justify-content:space-between;gap:16px;padding:2px 14px;text-align:right;white-space:normal}
td::before{content:attr(data-label);color:var(--dim);font:13px/1.7 system-ui,sans-serif;flex:none}
td:empty{display:none}td.c{overflow-wrap:anywhere}td:first-child{font-weight:650}td.k{min-width:0}}
"""

CSS_SHA256 = "sha256-" + base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()
"""Source expression for the Content-Security-Policy: this style sheet and nothing else."""
