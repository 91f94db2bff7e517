// Points on a canvas: zoom, drag, hover, and the way from point to point by keyboard.

const RADIUS = 4.5;
const NEAR = 14;
const MOST_ZOOM = 60;
const MOST_STRETCH = 1.5;

/** Draws points with `x` and `y` in [0, 1]; calls `select(point)` and `open(point)`. */
export class Plot {
  constructor(canvas, { select, open, colourOf, isShown, isFound }) {
    Object.assign(this, { canvas, select, open, colourOf, isShown, isFound });
    this.points = [];
    this.current = null;
    this.hovered = null;
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
    new ResizeObserver(() => this.draw()).observe(canvas);
    this.#listen();
  }

  show(points) {
    this.points = points;
    this.current = null;
    this.hovered = null;
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
    this.draw();
  }

  /** Pixels for one unit of the map, to the right and down; the map is stretched a little where it leaves space. */
  get #scale() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const share = 0.92 * this.view.zoom;
    return [Math.min(width, height * MOST_STRETCH) * share, Math.min(height, width * MOST_STRETCH) * share];
  }

  #place(point) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const [right, down] = this.#scale;
    return [width / 2 + (point.x - this.view.x) * right, height / 2 + (point.y - this.view.y) * down];
  }

  draw() {
    const { canvas } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const style = getComputedStyle(canvas);
    const colours = this.colourOf();
    pen.strokeStyle = style.backgroundColor;
    for (const isTop of [false, true]) {
      for (const point of this.points) {
        if (!this.isShown(point) || this.isFound(point) !== isTop) continue;
        const [x, y] = this.#place(point);
        if (x < -9 || y < -9 || x > width + 9 || y > height + 9) continue;
        pen.globalAlpha = isTop ? 0.9 : 0.16;
        pen.fillStyle = colours.get(point.type) ?? style.color;
        pen.beginPath();
        pen.arc(x, y, RADIUS, 0, 2 * Math.PI);
        pen.fill();
        pen.lineWidth = 0.7;
        pen.stroke();
      }
    }
    pen.globalAlpha = 1;
    this.#labels(pen, style);
  }

  #labels(pen, style) {
    pen.font = `500 13px ${style.fontFamily}`;
    const named = [this.hovered, this.current].filter(Boolean);
    if (this.view.zoom > 5) {
      const { clientWidth: width, clientHeight: height } = this.canvas;
      const within = this.points.filter((point) => {
        const [x, y] = this.#place(point);
        return this.isShown(point) && this.isFound(point) && x > 0 && y > 0 && x < width && y < height;
      });
      if (within.length < 40) named.unshift(...within);
    }
    for (const point of new Set(named)) {
      const [x, y] = this.#place(point);
      if (point === this.current || point === this.hovered) {
        pen.strokeStyle = style.color;
        pen.lineWidth = 2;
        pen.beginPath();
        pen.arc(x, y, RADIUS + 3, 0, 2 * Math.PI);
        pen.stroke();
      }
      const text = point.canonical_name.length > 48 ? `${point.canonical_name.slice(0, 47)}…` : point.canonical_name;
      const width = pen.measureText(text).width;
      const left = Math.max(2, Math.min(x + 12, this.canvas.clientWidth - width - 10));
      pen.globalAlpha = 0.88;
      pen.fillStyle = style.backgroundColor;
      pen.fillRect(left - 4, y - 11, width + 8, 20);
      pen.globalAlpha = 1;
      pen.fillStyle = style.color;
      pen.fillText(text, left, y + 4);
    }
  }

  zoom(factor, at = null) {
    const { view, canvas } = this;
    const zoom = Math.max(1, Math.min(MOST_ZOOM, view.zoom * factor));
    if (at) {
      const [right, down] = this.#scale;
      const moved = 1 - view.zoom / zoom; // what is under the pointer stays there
      view.x += ((at[0] - canvas.clientWidth / 2) / right) * moved;
      view.y += ((at[1] - canvas.clientHeight / 2) / down) * moved;
    } else if (this.current) Object.assign(view, { x: this.current.x, y: this.current.y });
    view.zoom = zoom;
    if (zoom === 1) Object.assign(view, { x: 0.5, y: 0.5 });
    this.draw();
  }

  showAll() {
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
    this.draw();
  }

  choose(point) {
    this.current = point;
    const [x, y] = this.#place(point);
    if (x < 0 || y < 0 || x > this.canvas.clientWidth || y > this.canvas.clientHeight) {
      Object.assign(this.view, { x: point.x, y: point.y });
    }
    this.draw();
    this.select(point);
  }

  #nearest(x, y) {
    let best = null;
    let least = NEAR;
    for (const point of this.points) {
      if (!this.isShown(point)) continue;
      const [px, py] = this.#place(point);
      const distance = Math.hypot(px - x, py - y);
      if (distance < least) [best, least] = [point, distance];
    }
    return best;
  }

  /** The next point in a direction; one that lies straight ahead counts as nearer. The first is that in the middle. */
  #step(dx, dy) {
    const from = this.current ?? this.view;
    let best = null;
    let least = Infinity;
    for (const point of this.points) {
      if (point === this.current || !this.isShown(point) || !this.isFound(point)) continue;
      const along = (point.x - from.x) * dx + (point.y - from.y) * dy;
      const across = Math.abs((point.x - from.x) * dy + (point.y - from.y) * dx);
      if (this.current && (along <= 0 || across > along * 1.5)) continue;
      const distance = Math.abs(along) + across * 2;
      if (distance < least) [best, least] = [point, distance];
    }
    if (best) this.choose(best);
  }

  #listen() {
    const { canvas } = this;
    const at = (event) => [event.offsetX, event.offsetY];
    const touches = new Map();
    let dragged = null;
    let spread = 0;
    const gap = () => {
      const [a, b] = [...touches.values()];
      return Math.hypot(a[0] - b[0], a[1] - b[1]);
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, at(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      touches.set(event.pointerId, at(event));
      if (touches.size === 2) spread = gap();
      dragged = { from: at(event), moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = at(event);
      if (touches.has(event.pointerId)) touches.set(event.pointerId, [x, y]);
      if (touches.size === 2) {
        const now = gap();
        this.zoom(now / (spread || now), [x, y]);
        spread = now;
        dragged.moved = true;
      } else if (dragged && touches.size === 1) {
        const [fromX, fromY] = dragged.from;
        if (!dragged.moved && Math.hypot(x - fromX, y - fromY) < 4) return;
        const [right, down] = this.#scale;
        this.view.x -= (x - fromX) / right;
        this.view.y -= (y - fromY) / down;
        dragged = { from: [x, y], moved: true };
        this.draw();
      } else {
        const before = this.hovered;
        this.hovered = this.#nearest(x, y);
        canvas.style.cursor = this.hovered ? "pointer" : "grab";
        if (before !== this.hovered) this.draw();
      }
    });
    const end = (event) => {
      touches.delete(event.pointerId);
      const wasClick = dragged && !dragged.moved && event.type === "pointerup";
      if (!touches.size) dragged = null;
      const point = wasClick && this.#nearest(...at(event));
      if (point) this.choose(point);
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => {
      this.hovered = null;
      this.draw();
    });
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (steps[event.key]) this.#step(...steps[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoom(1.5);
      else if (event.key === "-") this.zoom(1 / 1.5);
      else if (event.key === "0") this.showAll();
      else if (event.key === "Enter" && this.current) this.open(this.current);
      else return;
      event.preventDefault();
    });
  }
}
