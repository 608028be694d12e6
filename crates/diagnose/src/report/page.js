const runs = JSON.parse(document.getElementById("data").textContent);
const heats = runs.length ? [...document.querySelectorAll(".heat")].map((holder) => Heat(holder, runs)) : [];
for (const holder of document.querySelectorAll(".gantt")) Gantt(holder, runs);
for (const button of document.querySelectorAll("button.show")) {
  button.addEventListener("click", () => {
    for (const { view, shown, holder } of heats) {
      const marks = shown.flatMap((run) => run.evidence).filter(([rule]) => rule === button.dataset.rule);
      if (!marks.length) continue;
      const from = Math.min(...marks.map((mark) => mark[1]));
      const to = Math.max(...marks.map((mark) => mark[2]));
      view.rule = button.dataset.rule;
      const margin = Math.max((to - from) * 0.1, 1);
      view.set(from - margin, to + margin);
      holder.scrollIntoView({ block: "start", behavior: "smooth" });
    }
  });
}
const again = () => heats.forEach(({ redraw }) => redraw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
// On paper the colours are the light ones, and a frame may not come before it is printed.
matchMedia("print").addEventListener("change", again);
