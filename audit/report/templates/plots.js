"use strict";
(() => {
  const drawings = JSON.parse(document.getElementById("drawings").textContent);
  const W = 380, H = 330, LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 40;
  const SMALLEST = 1e-7;
  const short = (x) => (x === 0 ? "0" : Math.abs(x) < 1e-3 || Math.abs(x) >= 1e4 ? x.toExponential(1) : String(Number(x.toPrecision(3))));
  const make = (name, attributes, parent) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    if (parent) parent.append(node);
    return node;
  };

  const linear = (low, high, from, to) => {
    const place = (x) => from + ((x - low) / (high - low || 1)) * (to - from);
    const rough = (high - low) / 5 || 1;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((times) => times * unit >= rough * 0.999);
    const ticks = [];
    for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) ticks.push(Math.abs(tick) < step / 1e6 ? 0 : tick);
    return { place, ticks, back: (p) => low + ((p - from) / (to - from)) * (high - low), log: false };
  };
  const logarithmic = (low, high, from, to) => {
    const [a, b] = [Math.log10(low), Math.log10(high)];
    const place = (x) => from + ((Math.log10(Math.max(x, low)) - a) / (b - a)) * (to - from);
    const step = Math.max(1, Math.ceil((b - a) / 6));
    const ticks = [];
    for (let power = Math.ceil(a); power <= Math.floor(b); power += step) ticks.push(10 ** power);
    return { place, ticks, back: (p) => 10 ** (a + ((p - from) / (to - from)) * (b - a)), log: true };
  };

  const frame = (svg, x, y, names) => {
    svg.replaceChildren();
    const title = make("title", {}, svg);
    title.textContent = svg.getAttribute("aria-label");
    x.ticks.forEach((tick) => {
      make("line", { x1: x.place(tick), x2: x.place(tick), y1: TOP, y2: H - BOTTOM, stroke: "var(--line)" }, svg);
      make("text", { x: x.place(tick), y: H - BOTTOM + 15, "text-anchor": "middle" }, svg).textContent = short(tick);
    });
    y.ticks.forEach((tick) => {
      make("line", { x1: LEFT, x2: W - RIGHT, y1: y.place(tick), y2: y.place(tick), stroke: "var(--line)" }, svg);
      make("text", { x: LEFT - 6, y: y.place(tick) + 4, "text-anchor": "end" }, svg).textContent = short(tick);
    });
    make("text", { x: (LEFT + W - RIGHT) / 2, y: H - 6, "text-anchor": "middle" }, svg).textContent = names[0];
    make("text", { x: 12, y: (TOP + H - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(TOP + H - BOTTOM) / 2})` }, svg).textContent = names[1];
  };

  const draw = (svg, x, y, series) => {
    series.filter((one) => one.points && one.points.length).forEach((one) => {
      const inside = x.log ? one.points.filter(([a, b]) => a > 0 && b > 0) : y.log ? one.points.filter(([, b]) => b > 0) : one.points;
      if (one.dots) {
        one.points.forEach(([a, b]) => make("circle", { cx: x.place(a), cy: y.place(b), r: one.size || 4, fill: one.colour, stroke: "var(--paper)" }, svg));
      } else if (inside.length) {
        const path = inside.map(([a, b], i) => `${i ? "L" : "M"}${x.place(a).toFixed(1)} ${y.place(b).toFixed(1)}`).join("");
        make("path", { d: path, fill: "none", stroke: one.colour, "stroke-width": one.width || 1.5, "stroke-dasharray": one.dash || "" }, svg);
      }
    });
  };

  const at = (points, wanted) => {
    const sorted = [...points].sort((p, q) => p[0] - q[0]);
    for (let i = 1; i < sorted.length; i += 1) {
      const [[a, b], [c, d]] = [sorted[i - 1], sorted[i]];
      if (wanted >= a && wanted <= c) return c === a ? Math.min(b, d) : b + ((wanted - a) / (c - a)) * (d - b);
    }
    return NaN;
  };

  const hover = (svg, x, output, name, series) => {
    const line = make("line", { y1: TOP, y2: H - BOTTOM, stroke: "var(--soft)", "stroke-dasharray": "2 3", visibility: "hidden" }, svg);
    let place = (LEFT + W) / 2;
    const show = (where) => {
      place = Math.min(Math.max(where, LEFT), W - RIGHT);
      line.setAttribute("visibility", "visible");
      line.setAttribute("x1", place); line.setAttribute("x2", place);
      const wanted = x.back(place);
      const parts = series.filter((one) => one.points && one.points.length > 1 && !one.dots).map((one) => [one.name, at(one.points, wanted)]);
      // read off lines between a few drawn points: neither a bound nor rounded like one
      output.textContent = `${name} ≈ ${short(wanted)}: ` + parts.filter(([, v]) => !Number.isNaN(v)).map(([n, v]) => `${n} ≈ ${short(Math.max(v, 0))}`).join(", ");
    };
    svg.onpointermove = (event) => {
      const box = svg.getBoundingClientRect();
      show(((event.clientX - box.left) / box.width) * W);
    };
    svg.onkeydown = (event) => {
      const step = { ArrowLeft: -6, ArrowRight: 6 }[event.key];
      if (step) { event.preventDefault(); show(place + step); }
    };
  };

  const legend = (list, series) => {
    list.replaceChildren(...series.filter((one) => one.points && one.points.length && one.name).map((one) => {
      const item = document.createElement("li");
      const mark = document.createElement("i");
      if (one.dots) { mark.className = "dot"; mark.style.background = one.colour; }
      else { mark.style.borderColor = one.colour; if (one.dash) mark.style.borderTopStyle = "dashed"; }
      item.append(mark, one.name);
      return item;
    }));
  };

  const tradeOff = (figure, data, log) => {
    const svg = figure.querySelector("svg");
    const ends = log ? [SMALLEST_OF(data), 1] : [0, 1];
    const scale = log ? logarithmic : linear;
    const x = scale(...ends, LEFT, W - RIGHT), y = scale(...ends, H - BOTTOM, TOP);
    const errors = (one) => (one.judged ? 0 : 2) + Math.min(...one.points.map(([a, b]) => a + b));
    const [telling, ...others] = [...data.observed].sort((one, other) => errors(one) - errors(other));
    const series = [
      { name: "claimed", points: data.claim, colour: "var(--claim)", width: 2.4 },
      { name: "exact", points: data.exact, colour: "var(--exact)", dash: "5 4" },
      ...others.map((one, i) => ({ name: i ? undefined : `observed: ${others.length === 1 ? one.name : `${others.length} other scores`}`, points: one.points, colour: "var(--soft)", width: 0.8 })),
      { name: others.length ? `observed: ${telling.name}` : "observed", points: telling && telling.points, colour: "var(--observed)", width: 1.8 },
      { name: "proven band", points: data.band, colour: "var(--band)", width: 1 },
      { name: "proven", points: data.proven, colour: "var(--band)", dots: true },
      { name: "violated here", points: data.violated ? [data.violated] : [], colour: "var(--open)", dots: true, size: 6 },
      { name: "ceiling of these trials", points: data.ceiling ? [data.ceiling] : [], colour: "var(--ceiling)", dots: true },
    ];
    frame(svg, x, y, ["false-alarm rate", "miss rate"]);
    draw(svg, x, y, series);
    legend(figure.querySelector(".legend"), series);
    hover(svg, x, figure.querySelector(".hover"), "at false-alarm rate", series.filter((one) => one.name));
  };
  const SMALLEST_OF = (data) => {
    const seen = [...(data.band || []), ...data.proven.map(([a, b]) => [a, b]), ...(data.ceiling ? [data.ceiling] : [])].flat().filter((v) => typeof v === "number" && v > 0);
    return 10 ** Math.floor(Math.log10(Math.max(SMALLEST, Math.min(0.01, ...seen) / 2)));
  };

  const profile = (figure, data, log) => {
    const svg = figure.querySelector("svg");
    const curve = (deltas) => deltas && deltas.map((delta, i) => [data.epsilons[i], delta]);
    const x = linear(0, Math.max(...data.epsilons), LEFT, W - RIGHT);
    const positive = [...data.claim, ...data.proven, ...data.number.map(([, d]) => d)].filter((d) => d > 0);
    const top = Math.min(1, Math.max(...positive, 1e-6) * 1.15);
    const y = log ? logarithmic(10 ** Math.floor(Math.log10(Math.max(SMALLEST, Math.min(...positive, 1e-2)))), 1, H - BOTTOM, TOP) : linear(0, top, H - BOTTOM, TOP);
    const series = [
      { name: "claimed", points: curve(data.claim), colour: "var(--claim)", width: 2.4 },
      { name: "exact", points: curve(data.exact), colour: "var(--exact)", dash: "5 4" },
      { name: "proven", points: curve(data.proven), colour: "var(--band)" },
      { name: "the proven epsilon", points: data.number, colour: "var(--band)", dots: true },
    ];
    frame(svg, x, y, ["epsilon", "delta"]);
    draw(svg, x, y, series);
    legend(figure.querySelector(".legend"), series);
    hover(svg, x, figure.querySelector(".hover"), "at epsilon", series);
  };

  const scores = (figure, all, log, chosen) => {
    const data = all[chosen || 0];
    const svg = figure.querySelector("svg");
    const steps = (side) => data.edges.slice(0, -1).flatMap((edge, i) => [[edge, side.density[i]], [data.edges[i + 1], side.density[i]]]);
    const values = [...data.without.density, ...data.with.density].filter((v) => v > 0);
    const top = Math.max(...values, 1e-12);
    const x = linear(data.edges[0], data.edges[data.edges.length - 1], LEFT, W - RIGHT);
    const y = log ? logarithmic(10 ** Math.floor(Math.log10(Math.min(...values, top / 10))), 10 ** Math.ceil(Math.log10(top)), H - BOTTOM, TOP) : linear(0, top * 1.05, H - BOTTOM, TOP);
    const series = [
      { name: "without the record", points: steps(data.without), colour: "var(--claim)" },
      { name: "with it", points: steps(data.with), colour: "var(--band)" },
    ];
    frame(svg, x, y, [`score (${data.member})`, "density"]);
    draw(svg, x, y, series);
    legend(figure.querySelector(".legend"), series);
    hover(svg, x, figure.querySelector(".hover"), "at score", series);
    const outside = (side) => short(side.below + side.above);
    figure.querySelector(".hover").textContent = `outside the plot: ${outside(data.without)} without, ${outside(data.with)} with`;
  };

  const KINDS = { tradeOff, profile, scores };
  document.querySelectorAll("figure[data-kind]").forEach((figure) => {
    const data = drawings[Number(figure.dataset.audit)][figure.dataset.kind];
    const buttons = [...figure.querySelectorAll(".axes button")];
    let log = false, done = false, chosen = 0;
    const render = () => { done = true; KINDS[figure.dataset.kind](figure, data, log, chosen); };
    buttons.forEach((button) => button.addEventListener("click", () => {
      log = button.dataset.axes === "log";
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      render();
    }));
    const member = figure.querySelector("select");
    if (member) member.addEventListener("change", () => { chosen = Number(member.value); render(); });
    const audit = figure.closest("details");
    const first = () => { if (audit.open && !done) render(); };
    audit.addEventListener("toggle", first);
    first();
  });
})();
