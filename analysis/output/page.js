
document.querySelectorAll("figure").forEach(function (figure) {
  var out = figure.querySelector(".readout");
  function show(event) {
    var mark = event.target.closest("svg.chart .m, svg.chart .hit, svg.chart .line");
    var title = mark && mark.querySelector("title");
    if (title) out.textContent = title.textContent;
  }
  figure.addEventListener("pointerover", show);
  figure.addEventListener("click", show);
});
// A link into a folded part opens it.
function unfold() {
  var part = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
}
addEventListener("hashchange", unfold);
unfold();
// On paper nothing can be unfolded.
var folded = [];
addEventListener("beforeprint", function () {
  folded = Array.from(document.querySelectorAll("main details:not([open])"));
  folded.forEach(function (part) { part.open = true; });
});
addEventListener("afterprint", function () {
  folded.forEach(function (part) { part.open = false; });
});
