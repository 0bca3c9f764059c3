/* What the pages about messages add: a search in text that goes on by itself, and can be cancelled. */
(() => {
  "use strict";
  const make = (tag, text, kind) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };

  // Search on: the API looks through a bounded part of the log for each request.

  const found = document.getElementById("found");
  const on = found?.querySelector(".search a.button");

  function row(message) {
    const line = make("tr"), link = make("a", new Date(message.storeMs).toISOString().replace("T", " ").slice(0, 23));
    const at = new URLSearchParams({ topic: message.topic, queue: message.queue, offset: message.offset });
    link.href = `/message?${at}`;
    const cells = [["Stored", "", "mono"], ["Topic", message.topic], ["Queue", message.queue, "n"], ["Offset", message.offset, "n"],
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
          if (answer.messages.length) tableOf().append(...answer.messages.map(row));
          const end = answer.cursor === null;
          bar.value = end ? 1 : (answer.cursor - first) / Math.max(1, answer.logEnd - first);
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
})();
