/* The console's own script: refreshes the page while its tab is visible, asks before a change, draws charts.
   Pages can be read without it. */
(() => {
  "use strict";
  const page = document.getElementById("page");
  const live = document.getElementById("live");
  const ask = document.getElementById("ask");
  const byId = (id) => document.getElementById(id);
  const EVERY_MS = 2000, SLOW_MS = 5000;

  function make(tag, text, kind) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  // Refresh.

  let etag = document.getElementById("etag")?.value;
  let asked = 0;  // When the answer that is waited for was; 0: none is.

  function show(state, text) {
    live.dataset.state = state;
    live.textContent = text;
  }

  function refresh() {
    if (asked && performance.now() - asked > SLOW_MS) show("lost", "no answer");
    if (document.visibilityState !== "visible" || ask.open || asked || !page?.hasAttribute("hx-get")) return;
    asked = performance.now();
    htmx.trigger(page, "refresh");
  }

  if (page?.hasAttribute("hx-get")) {
    document.addEventListener("htmx:config:request", (event) => {
      if (etag) event.detail.ctx.request.headers["If-None-Match"] = etag;
    });
    document.addEventListener("htmx:after:request", (event) => {
      asked = 0;
      const response = event.detail.ctx.response, shell = response.headers?.get("Shell");
      // The session has ended, or the node is in another state, of another version, or takes no changes any more.
      if (response.status === 401 || response.raw?.redirected || (shell && shell !== page.dataset.shell)) location.reload();
      if (response.status === 200) etag = response.headers.get("ETag");
      const good = response.status === 200 || response.status === 304;
      show(good ? "live" : "lost", good ? "live" : `error ${response.status}`);
    });
    document.addEventListener("htmx:error", () => { asked = 0; show("lost", "no answer"); });
    document.addEventListener("visibilitychange", refresh);
    setInterval(refresh, EVERY_MS);
    show("live", "live");
  }

  // Changes.

  let button = null;
  let shown = false;

  function table(rows) {
    const made = make("table"), head = make("tr"), names = Object.keys(rows[0]);
    for (const name of names) head.append(make("th", name.replace(/([A-Z])/g, " $1").toLowerCase(), "n"));
    made.append(head);
    for (const row of rows) {
      const line = make("tr");
      for (const name of names) line.append(make("td", Number.isInteger(row[name]) ? row[name].toLocaleString("en") : String(row[name] ?? ""), "n"));
      made.append(line);
    }
    return made;
  }

  function report(status, answer) {
    const result = byId("ask-result");
    result.replaceChildren();
    if (status >= 400 || status === 0) {
      const why = answer?.error?.message ?? answer?.problems?.join("; ") ?? "The node does not respond.";
      result.append(make("p", why, "wrong"));
      return;
    }
    // Of messages that were to be cancelled or moved, some may not have been.
    const each = answer.results ?? (answer.outcome ? [answer] : []);
    const failed = each.filter((one) => !["cancelled", "rescheduled"].includes(one.outcome));
    if (failed.length) {
      const many = each.length > 1 ? `Not changed: ${failed.length} of ${each.length}. ` : "";
      result.append(make("p", many + failed.map((one) => one.text).join("; "), "wrong"));
      return;
    }
    if (answer.dryRun) result.append(make("p", "Nothing is changed yet. This is what the change would do:"));
    else result.append(make("p", answer.text ?? (answer.changed === false ? "Nothing had to be changed." : "Done."), "good"));
    for (const [name, value] of Object.entries(answer)) {
      if (!Array.isArray(value) || !value.length) continue;
      if (typeof value[0] === "object") result.append(table(value));
      else result.append(make("p", `${name.replace(/([A-Z])/g, " $1").toLowerCase()}: ${value.join(", ")}`));
    }
  }

  function bodyOf() {
    const body = { ...button.body };
    for (const field of byId("ask-fields").querySelectorAll("input")) {
      if (!field.reportValidity()) return null;
      if (field.type === "number") body[field.name] = Number(field.value);
      else if (field.type === "datetime-local") body[field.name] = new Date(field.value).getTime();
      else if (field.type === "checkbox") body[field.name] = field.checked;
      else body[field.name] = field.value;
    }
    if (button.dryRun) body.dryRun = !shown;
    return body;
  }

  function label() {
    const options = [...byId("ask-fields").querySelectorAll("input")].map((field) => {
      const value = field.type === "datetime-local" && field.value ? new Date(field.value).toISOString() : field.value;
      return value ? ` ${field.dataset.option} ${value}` : "";
    });
    byId("ask-command").textContent = button.command + options.join("");
    byId("ask-go").textContent = button.dryRun && !shown ? "Show the effect" : button.label;
    byId("ask-go").className = button.tone === "bad" && (shown || !button.dryRun) ? "bad" : "";
  }

  function open(from) {
    button = JSON.parse(from.dataset.change);
    shown = false;
    byId("ask-title").textContent = button.label;
    byId("ask-text").textContent = button.text;
    byId("ask-result").replaceChildren();
    byId("ask-fields").replaceChildren(...(button.fields ?? []).flatMap((field) => {
      const input = make("input");
      Object.assign(input, { name: field.name, type: field.type, id: `ask-${field.name}`, required: field.type !== "checkbox" });
      if (field.type === "number") input.min = "0";
      if (field.type === "datetime-local") input.step = "1";
      input.dataset.option = field.option;
      if (field.value !== undefined) input.value = field.value;
      const name = make("label", field.label);
      name.htmlFor = input.id;
      input.addEventListener("input", () => { shown = false; label(); });
      return [name, input];
    }));
    byId("ask-go").disabled = byId("ask-fields").inert = false;
    label();
    ask.showModal();
  }

  async function go() {
    const act = byId("ask-go"), asked = button;
    // Enter in a field comes here, too.
    const body = act.disabled ? null : bodyOf();
    if (body === null) return;
    act.disabled = byId("ask-fields").inert = true;
    let status = 0, answer = null;
    try {
      const response = await fetch(button.path, {
        method: button.method ?? "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
      });
      status = response.status;
      answer = await response.json();
    } catch { /* It is shown as no answer. */ }
    // The dialog may be that of another button by now.
    if (asked !== button) return;
    byId("ask-fields").inert = false;
    report(status, answer);
    const done = status >= 200 && status < 400;
    if (done && button.dryRun && !shown) {
      shown = true;
      label();
      act.disabled = false;
    } else if (!done) act.disabled = false;
  }

  document.addEventListener("click", (event) => {
    const from = event.target.closest?.("[data-change]");
    if (from) open(from);
  });
  byId("ask-go")?.addEventListener("click", go);
  ask?.addEventListener("submit", (event) => {
    if (event.submitter?.value !== "cancel") { event.preventDefault(); go(); }
  });
  ask?.addEventListener("close", refresh);

  // On a phone the menu is longer than the screen.

  document.querySelector(".bar nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // Keys: / goes to the filter of the page, 1 to 9 open the pages of the menu.

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || ask?.open || event.target.closest("input, select, textarea")) return;
    if (event.key === "/") {
      const field = page?.querySelector("form.filter input");
      if (field) { event.preventDefault(); field.focus(); }
    } else if (/^[1-9]$/.test(event.key)) document.querySelectorAll(".bar nav a")[Number(event.key) - 1]?.click();
  });

  // Charts: an element whose data the server changes, drawn where a refresh does not reach.

  const sheet = document.querySelector('link[href*="uPlot"]')?.href;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  class RateChart extends HTMLElement {
    static observedAttributes = ["data-points"];

    connectedCallback() {
      if (this.shadowRoot) return;
      const root = this.attachShadow({ mode: "open" });
      const style = make("link");
      Object.assign(style, { rel: "stylesheet", href: sheet });
      this.place = make("div");
      root.append(style, this.place);
      style.addEventListener("load", () => this.draw(), { once: true });
      new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    }

    attributeChangedCallback() {
      if (this.plot) this.plot.setData(this.points());
    }

    size() {
      return { width: Math.max(200, this.clientWidth - 24), height: 190 };
    }

    points() {
      const found = JSON.parse(this.dataset.points);
      const times = found.series[0].values.map((_, at) => (found.since + at * found.width) / 1000);
      this.events = found.events ?? [];
      return [times, ...found.series.map((each) => each.values)];
    }

    moment(found) {
      const options = found.width * found.series[0].values.length > 172800000 ? { month: "2-digit", day: "2-digit" } : { hour: "2-digit", minute: "2-digit" };
      return (at) => new Date(at * 1000).toLocaleString("sv", options);
    }

    draw() {
      this.plot?.destroy();
      const found = JSON.parse(this.dataset.points);
      const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") }, font: "12px system-ui" };
      const marks = (plot) => {
        const { ctx, bbox } = plot;
        ctx.save();
        ctx.strokeStyle = colour("warn");
        ctx.fillStyle = colour("warn");
        ctx.setLineDash([4, 4]);
        ctx.textAlign = "left";
        for (const event of this.events) {
          const x = plot.valToPos(event.at / 1000, "x", true);
          if (x < bbox.left || x > bbox.left + bbox.width) continue;
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
          const width = ctx.measureText(event.name).width + 8, fits = x + width < bbox.left + bbox.width;
          ctx.fillText(event.name, fits ? x + 4 : x + 4 - width, bbox.top + 12);
        }
        ctx.restore();
      };
      this.plot = new uPlot({
        ...this.size(),
        legend: { live: true },
        cursor: { sync: { key: "charts" }, drag: { x: true, y: false } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.08)] } },
        axes: [{ ...axis, values: (_, ticks) => ticks.map(this.moment(found)) }, { ...axis, size: 62 }],
        series: [{ label: "time", value: (_, at) => at === null || at === undefined ? "–" : new Date(at * 1000).toLocaleString("sv") }, ...found.series.map((each) => ({
          label: each.name, stroke: colour(each.tone), width: 1.5, spanGaps: false,
          fill: each.fill ? `color-mix(in srgb, ${colour(each.tone)} 14%, transparent)` : undefined, points: { show: false },
          value: (_, value) => value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: 1 }),
        }))],
        hooks: { draw: [marks] },
      }, this.points(), this.place);
    }
  }
  if (window.uPlot) customElements.define("rate-chart", RateChart);
})();
