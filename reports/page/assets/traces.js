// The scale traces of a replay, on the page.
function startTraces() {
  for (const place of document.querySelectorAll('[data-traces]')) {
    const {traces: {panels: [panel]}} = data.replays[Number(place.dataset.traces)];
    let width = 0;
    const redraw = () => {
      if (place.clientWidth === width) return;
      width = place.clientWidth;
      place.replaceChildren(...drawTraces(panel, width));
    };
    redraw();
    new ResizeObserver(redraw).observe(place);
  }
}
