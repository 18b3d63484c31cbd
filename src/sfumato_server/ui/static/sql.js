"use strict";
// The SQL box: it completes names of tables and columns, marks the wrong place of a refused statement, and takes a
// suggested one.  A layer behind the box repeats its text, so that marks and the list stand where the words do.

const MOST_OPTIONS = 60;
const WORD = /(?:("?)([\p{L}\p{N}_$]+)\1\.)?("?[\p{L}\p{N}_$]*)$/u;
const plainName = (name) => name.replaceAll('"', "").toLowerCase();

const sqlBox = (place) => {
  const box = place.querySelector("textarea"), layer = place.querySelector(".marks"), list = place.querySelector("ul");
  const count = place.querySelector("[role=status]"), help = place.querySelector(".help");
  const tables = JSON.parse(place.dataset.names);
  let options = [], active = -1, start = 0;

  // The layer
  const fit = () => {
    layer.style.width = `${box.clientWidth + 2 * box.clientLeft}px`;
    layer.scrollTop = box.scrollTop;
  };
  const element = (kind, text) => Object.assign(document.createElement(kind), { textContent: text });
  const paint = (from, to) => {
    const text = box.value;
    layer.replaceChildren(text.slice(0, from), element("mark", text.slice(from, to)), `${text.slice(to)}\n`);
    fit();
  };
  const clear = () => {
    layer.replaceChildren();
    box.removeAttribute("aria-invalid");
    box.setAttribute("aria-describedby", "sql-help");
  };
  const marked = () => {
    clear();
    const wrong = document.querySelector("#sql-place");
    if (!wrong) return;
    const { line, column, length } = wrong.dataset, lines = box.value.split("\n");
    const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    const letters = [...(lines[line - 1] ?? "")], left = letters.slice(0, column - 1).join("");
    const from = before + left.length, to = from + letters.slice(column - 1, column - 1 + Number(length)).join("").length;
    paint(from, to);
    box.setSelectionRange(from, to);
    box.setAttribute("aria-invalid", "true");
    box.setAttribute("aria-describedby", "sql-place sql-help");
  };

  // The names that fit the word before the caret
  const named = (statement) => {
    const names = new Map(tables.map((table) => [plainName(table.name), table]));
    for (const [, table, alias] of statement.matchAll(/([\p{L}\p{N}_$]+|"[^"]+")(?=\s+(?:as\s+)?([\p{L}_][\p{L}\p{N}_]*))/giu)) {
      const found = names.get(plainName(table));
      if (found && !/^(on|where|join|using|group|order|as|left|inner|cross|having|limit)$/i.test(alias)) names.set(plainName(alias), found);
    }
    return names;
  };
  const fitting = (all) => {
    const caret = box.selectionStart, before = box.value.slice(0, caret);
    if (box.selectionEnd !== caret || (before.split("'").length - 1) % 2 || /--[^\n]*$/.test(before)) return [];
    const [, , owner, typed] = WORD.exec(before), wanted = plainName(typed);
    start = caret - typed.length;
    if (!wanted && !owner && !all) return [];
    if (/^\p{N}/u.test(wanted)) return [];
    const names = named(box.value), after = before.slice(0, start);
    const columns = (table) => table.columns.map((name) => ({ name, of: tables.length > 1 ? table.name : "" }));
    let offered;
    if (owner) offered = names.has(plainName(owner)) ? columns(names.get(plainName(owner))) : [];
    else if (/\b(from|join)\s+(?:[\p{L}\p{N}_"]+(?:\s+(?:as\s+)?[\p{L}\p{N}_]+)?\s*,\s*)*$/iu.test(after)) offered = tables.map(({ name }) => ({ name, of: "table" }));
    else {
      const used = tables.filter(({ name }) => plainName(box.value).match(new RegExp(`\\b${plainName(name).replace(/[$]/g, "\\$&")}\\b`, "u")));
      const ordered = [...used, ...tables.filter((table) => !used.includes(table))];
      offered = [...ordered.flatMap(columns), ...tables.map(({ name }) => ({ name, of: "table" }))];
    }
    const first = offered.filter(({ name }) => plainName(name).startsWith(wanted));
    const later = offered.filter(({ name }) => !plainName(name).startsWith(wanted) && plainName(name).includes(wanted));
    const fit = [...first, ...later].slice(0, MOST_OPTIONS);
    return !all && fit.some(({ name }) => name === typed) ? [] : fit;
  };

  // The list
  const close = () => {
    list.hidden = true;
    active = -1;
    box.removeAttribute("aria-activedescendant");
    box.removeAttribute("aria-controls");
  };
  const activate = (next) => {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = (next + options.length) % options.length;
    const item = list.children[active];
    item.setAttribute("aria-selected", "true");
    item.scrollIntoView({ block: "nearest" });
    box.setAttribute("aria-activedescendant", item.id);
  };
  const stand = () => {
    const caret = element("span", "\u200b");
    const shown = [...layer.childNodes];
    layer.replaceChildren(box.value.slice(0, start), caret);
    fit();
    const left = Math.min(caret.offsetLeft, box.clientWidth - list.offsetWidth);
    list.style.left = `${Math.max(left, 0)}px`;
    list.style.top = `${Math.min(caret.offsetTop + caret.offsetHeight - box.scrollTop, box.offsetHeight) + 2}px`;
    layer.replaceChildren(...shown);
  };
  const open = (all) => {
    options = fitting(all);
    if (!options.length) { if (!list.hidden) count.textContent = ""; close(); return; }
    list.replaceChildren(...options.map(({ name, of }, place) => {
      const item = element("li", name);
      item.id = `sql-name-${place}`;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", "false");
      if (of) item.append(" ", element("small", of));
      item.onpointerdown = (event) => { event.preventDefault(); take(place); };
      return item;
    }));
    list.hidden = false;
    box.setAttribute("aria-controls", list.id);
    active = -1;
    activate(0);
    stand();
    count.textContent = `${options.length === 1 ? "1 name" : `${options.length} names`}, first ${options[0].name}`;
  };
  const take = (place) => {
    box.setRangeText(options[place].name, start, box.selectionStart, "end");
    close();
    clear();
    box.form.dispatchEvent(new Event("input"));
    box.focus();
  };
  const put = (statement) => {
    box.value = statement;
    document.querySelector("[data-sql]").checked = true;
    close();
    clear();
    box.form.dispatchEvent(new Event("input"));
    box.focus();
    box.setSelectionRange(statement.length, statement.length);
    box.scrollIntoView({ block: "center" });
  };

  const keys = {
    ArrowDown: () => activate(active + 1), ArrowUp: () => activate(active - 1), Escape: close,
    Enter: () => take(active), Tab: () => take(active),
  };
  box.onkeydown = (event) => {
    if (event.key === " " && event.ctrlKey) { event.preventDefault(); open(true); return; }
    if (list.hidden || !keys[event.key] || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  };
  box.oninput = () => { clear(); open(false); };
  box.onblur = close;
  box.onscroll = () => { fit(); close(); };
  box.onclick = close;
  new ResizeObserver(fit).observe(box);
  box.setAttribute("aria-autocomplete", "list");
  box.setAttribute("aria-haspopup", "listbox");
  help.hidden = false;
  clear();
  marked();
  document.addEventListener("htmx:finally:request", marked);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-statement]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    put(link.textContent);
  });
};
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("[data-names]").forEach(sqlBox));
