// Lets a reader paste a message into the search field. It has words that are on no page, such as a connection id, and
// Sphinx finds pages with all words only. It also shows the first match on a page, not the row of the message.
"use strict";

/** Return the row or the paragraph that contains the most of some words, as early as possible. */
function bestPart(page, words) {
  let best = null;
  let most = 0;
  for (const part of page.querySelectorAll("article :is(tr, p, li, pre, dt)")) {
    const text = part.textContent.toLowerCase();
    const found = [...words].filter((word) => text.includes(word)).length;
    if (found > most) [best, most] = [part, found];
  }
  return best;
}

if (typeof Search !== "undefined") {
  const find = Search.performTermsSearch;
  // Find pages with at least half of the words; pages with more of them first, and the page of the messages before others.
  Search.performTermsSearch = (words, excluded) => {
    const pages = new Map();
    for (const word of words) {
      for (const result of find(new Set([word]), excluded)) {
        const page = pages.get(result[0]) ?? { result, found: 0, score: 0 };
        page.found += 1;
        page.score += result[4] * (result[0] === "docs/troubleshooting" ? 2 : 1);
        pages.set(result[0], page);
      }
    }
    return [...pages.values()]
      .filter((page) => page.found >= words.size / 2)
      .map((page) => page.result.with(4, page.score));
  };
  const summarize = Search.makeSearchSummary;
  Search.makeSearchSummary = (html, words, anchor) => {
    const part = anchor ? null : bestPart(new DOMParser().parseFromString(html, "text/html"), words);
    if (part === null) return summarize(html, words, anchor);
    const summary = document.createElement("p");
    summary.className = "context";
    summary.textContent = Array.from(part.cells ?? [part], (cell) => cell.textContent.trim()).join(" – ").replaceAll("¶", "");
    return summary;
  };
} else if (!location.hash) {
  const words = (localStorage.getItem("sphinx_highlight_terms") ?? "").split(" ").filter(Boolean);
  bestPart(document, words)?.scrollIntoView({ block: "center" });
}
