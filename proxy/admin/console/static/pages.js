/* What the pages about messages add: a search in text that goes on by itself, and can be cancelled. */
(() => {
  "use strict";
  const make = (tag, text, kind) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };

  // Producers set the timestamps of Kafka: one beyond the calendar is shown as it is.
  const moment = (ms) => (Math.abs(ms) <= 8.64e15 ? new Date(ms).toISOString() : String(ms));

  // Search on: the API looks through a bounded part of the log for each request.

  const found = document.getElementById("found");
  const on = found?.querySelector(".search a.button");

  function row(message, withTopic = true) {
    const line = make("tr"), link = make("a", moment(message.storeMs));
    const at = new URLSearchParams({ topic: message.topic, queue: message.queue, offset: message.offset });
    link.href = `/message?${at}`;
    const cells = [["Stored", "", "mono t"], ...(withTopic ? [["Topic", message.topic]] : []), ["Queue", message.queue, "n"], ["Offset", message.offset, "n"],
      ["Key", message.key ?? "", "key mono"], ["Tag", message.tag ?? ""], ["Size", `${message.bodyBytes} B`, "n"], ["Body", message.body.slice(0, 120), "long mono"]];
    for (const [label, text, kind] of cells) {
      const cell = make("td", text, kind);
      cell.dataset.label = label;
      line.append(cell);
    }
    line.firstChild.append(link);
    return line;
  }

  function tableOf() {
    let table = found.querySelector("table");
    if (!table) {
      table = make("table", undefined, "cards");
      const head = make("tr");
      for (const name of ["Stored", "Topic", "Queue", "Offset", "Key", "Tag", "Size", "Body"]) head.append(make("th", name));
      table.append(make("thead"), make("tbody"));
      table.tHead.append(head);
      found.prepend(table);
    }
    return table.tBodies[0];
  }

  if (found?.dataset.more) {
    const bar = found.querySelector("progress"), status = found.querySelector("[role=status]"), first = Number(found.dataset.first);
    let query = new URLSearchParams(found.dataset.more), stop = null;

    async function searchOn() {
      stop = new AbortController();
      on.textContent = "Cancel";
      try {
        for (let rows = 0; query && rows < 1000;) {
          const response = await fetch(`/api/messages?${query}`, { signal: stop.signal });
          const answer = await response.json();
          if (!response.ok) { status.textContent = answer.error?.message ?? "The search failed."; break; }
          rows += answer.messages.length;
          if (answer.messages.length) tableOf().append(...answer.messages.map((each) => row(each)));
          const end = answer.cursor === null;
          bar.value = end ? 1 : answer.share ?? (answer.cursor - first) / Math.max(1, answer.logEnd - first);
          status.textContent = end ? "The whole log is searched." : `${Math.round(bar.value * 100)}% of the log is searched.`;
          if (end) { query = null; on.remove(); } else query.set("cursor", answer.cursor);
        }
      } catch (error) {
        if (error.name !== "AbortError") status.textContent = "The node does not respond.";
      }
      stop = null;
      on.textContent = "Search on";
    }

    on.addEventListener("click", (event) => {
      event.preventDefault();
      if (stop) stop.abort();
      else searchOn();
    });
  }

  // Redrive: page after page of what the filter matches, or one by one what is selected; each outcome is shown.

  const redrive = document.getElementById("redrive");
  if (redrive) {
    const part = (name) => redrive.querySelector(name);
    const [dry, go, stop] = ["dry", "go", "stop"].map((name) => part(`button[value=${name}]`));
    const status = part("[role=status]"), bar = part("progress"), list = part(".outcomes"), to = part("[name=to]"), rate = part("[name=rate]");
    const boxes = () => [...document.querySelectorAll("#letters tbody input:checked")];
    const total = Number(redrive.dataset.total);
    let running = null, edited = false;

    function bodies() {
      const all = { ...JSON.parse(redrive.dataset.body), again: part("[name=again]").checked };
      if (to.value.trim()) all.to = to.value.trim();
      const chosen = boxes().map((box) => ({ group: all.group, again: all.again, to: all.to, id: box.dataset.id, cursor: box.dataset.cursor, limit: 1 }));
      return { all, chosen };
    }

    function note(each) {
      const where = each.target ? ` to ${each.target.topic}${each.target.queue === undefined ? "" : `, queue ${each.target.queue}`}` : each.why ? `: ${each.why}` : "";
      const line = make("li", `${each.queue}:${each.offset} `);
      line.append(make("bdi", each.key ?? ""), " ", make("b", each.outcome.replaceAll("_", " ")), where);
      list.append(line);
      if (list.children.length > 200) list.firstChild.remove();
    }

    // The command that does the same; the CLI names selected dead letters one by one.
    const command = part(".command"), whole = command.textContent;
    function say() {
      const { all, chosen } = bodies(), more = chosen.length - 1;
      const begin = chosen.length ? `pyddmq dlq redrive ${all.group} --id ${chosen[0].id}` : whole.replace(" --yes", "");
      const options = [all.to && ` --to ${all.to}`, rate.value && ` --rate ${rate.value}`, all.again && " --again", " --yes"];
      command.textContent = begin + options.filter(Boolean).join("") + (more > 0 ? `, and for ${more} more` : "");
    }

    async function run(dryRun) {
      if (!rate.reportValidity()) return;
      const { all, chosen } = bodies(), counts = {}, perSecond = Number(rate.value) || 0;
      running = new AbortController();
      edited = false;
      status.textContent = "";
      list.replaceChildren();
      dry.disabled = go.disabled = true;
      stop.hidden = status.parentElement.hidden = false;
      let looked = 0, cursor = null, problem = "";
      for (let at = 0; !problem && (chosen.length ? at < chosen.length : at === 0 || cursor !== null); at++) {
        const body = chosen.length ? { ...chosen[at], dryRun } : { ...all, dryRun, limit: Math.max(1, Math.min(100, perSecond || 100)) | 0 };
        if (!chosen.length && cursor !== null) body.cursor = cursor;
        const began = Date.now();
        try {
          const response = await fetch("/api/dead-letters/redrive", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: running.signal });
          const answer = await response.json();
          if (!response.ok) { problem = answer.error?.message ?? "The redrive failed."; break; }
          answer.results.forEach(note);
          for (const name of ["redriven", "wouldRedrive", "already", "refused"]) counts[name] = (counts[name] ?? 0) + answer[name];
          looked += answer.lookedAt;
          cursor = answer.cursor;
          problem = answer.stopped ?? "";
          bar.value = chosen.length ? (at + 1) / chosen.length : cursor === null ? 1 : looked / Math.max(total, looked + 1);
          const left = perSecond ? answer.results.length * 1000 / perSecond - (Date.now() - began) : 0;
          if (left > 0 && !dryRun) await new Promise((done) => { setTimeout(done, left); running.signal.addEventListener("abort", done); });
        } catch (error) {
          problem = error.name === "AbortError" ? "Cancelled; run it again to continue." : "The node does not respond; run it again to continue.";
        }
        if (running.signal.aborted) problem = "Cancelled; run it again to continue.";
        const said = dryRun ? `${counts.wouldRedrive ?? 0} would be redriven` : `${counts.redriven ?? 0} redriven`;
        status.textContent = `${dryRun ? "Nothing is changed yet: " : ""}${said}, ${counts.already ?? 0} already redriven, ${counts.refused ?? 0} refused. ${problem}`;
      }
      if (!status.textContent.includes(problem)) status.textContent += problem;
      stop.hidden = true;
      dry.disabled = false;
      go.disabled = !dryRun || edited || Boolean(problem) || !counts.wouldRedrive;
      running = null;
    }

    const changed = () => { say(); edited = go.disabled = true; };
    redrive.addEventListener("input", changed);
    document.getElementById("letters")?.addEventListener("input", (event) => {
      if (event.target.closest("thead")) document.querySelectorAll("#letters tbody input").forEach((box) => { box.checked = event.target.checked; });
      const count = boxes().length;
      dry.textContent = count ? `Show the effect on ${count} selected` : "Show the effect";
      changed();
    });
    dry.addEventListener("click", () => run(true));
    go.addEventListener("click", () => run(false));
    stop.addEventListener("click", () => running?.abort());
  }

  // Live tail: what was stored behind the last cursor, every two seconds while the tab is visible.

  const tail = document.getElementById("tail");
  if (tail) {
    const rows = tail.querySelector("tbody"), status = tail.querySelector("[role=status]"), pause = tail.querySelector("button");
    let cursor = tail.dataset.end, busy = false, paused = false;

    async function more() {
      if (busy || paused || document.visibilityState !== "visible") return;
      busy = true;
      const query = new URLSearchParams({ topic: tail.dataset.topic, cursor, limit: 100, body: tail.dataset.body, again: 1 });
      if (tail.dataset.text) query.set("text", tail.dataset.text);
      try {
        const response = await fetch(`/api/messages?${query}`);
        const answer = await response.json();
        if (response.ok) {
          const last = answer.messages.at(-1);
          for (const each of answer.messages) rows.prepend(row(each, false));
          while (rows.children.length > 200) rows.lastChild.remove();
          // The log may be shorter than it was: power loss, or another store.
          cursor = answer.cursor ?? Math.max(answer.logEnd, last ? last.physical + 1 : 0);
          status.textContent = answer.cursor === null || answer.share === 1 ? "live" : "behind; more follows";
        } else status.textContent = answer.error?.message ?? "error";
      } catch { status.textContent = "The node does not respond."; }
      busy = false;
    }

    pause.addEventListener("click", () => {
      paused = !paused;
      pause.textContent = paused ? "Continue" : "Pause";
      pause.setAttribute("aria-pressed", String(paused));
    });
    setInterval(more, 2000);
    more();
  }

  // Publish.

  document.getElementById("publish")?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.target, status = form.querySelector("[role=status]"), get = (name) => form.elements[name].value;
    const button = form.querySelector("button"), properties = Object.create(null);
    for (const line of get("properties").split("\n").filter((each) => each.trim())) {
      const at = line.indexOf("="), name = line.slice(0, at).trim();
      if (at < 0 || name in properties) {
        status.textContent = at < 0 ? `Property "${line.trim()}" has no "="; write name=value.` : `Property "${name}" is set twice.`;
        return;
      }
      properties[name] = line.slice(at + 1).trim();
    }
    const body = { topic: form.dataset.topic, body: get("body"), key: get("key"), tag: get("tag"), properties, delayMs: Math.round(Number(get("delay")) * 1000) };
    let answer = null, code = 0;
    button.disabled = true;
    status.textContent = "";
    try {
      const response = await fetch("/api/messages/publish", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      code = response.status;
      answer = await response.json();
    } catch { /* It is shown as no answer. */ }
    button.disabled = false;
    if (code !== 200) {
      const why = answer?.error?.message ?? "The node does not respond.";
      status.textContent = why[0].toUpperCase() + why.slice(1);
      return;
    }
    const link = make("a", answer.id);
    link.href = `/message?${new URLSearchParams({ topic: answer.topic, id: answer.id })}`;
    status.replaceChildren("Published ", link, answer.queue === null ? ", it waits" : `, queue ${answer.queue}, offset ${answer.offset}`);
  });
})();
