"use strict";
// Charts of a fragment that has just been put in its place.  Expressions are interpreted, never compiled, so
// that the page needs no permission to evaluate text as code.
const draw = () => {
  for (const place of document.querySelectorAll("[data-chart=spec]")) {
    place.dataset.chart = "drawn";
    const spec = JSON.parse(place.querySelector("script").textContent);
    vegaEmbed(place, spec, { ast: true, actions: false, renderer: "canvas", defaultStyle: false, tooltip: false })
      .then(() => { place.dataset.chart = "done"; }, () => { place.dataset.chart = "failed"; place.hidden = true; });
  }
};
new MutationObserver(draw).observe(document.documentElement, { childList: true, subtree: true });
document.addEventListener("DOMContentLoaded", draw);
