// The first screen of each workload: one at a time is shown, all of them on paper.
function startScreens() {
  const buttons = [...document.querySelectorAll('[data-choose]')], list = at('workload'), screens = [...document.querySelectorAll('[data-screen]')];
  if (screens.length === 0) return;
  const choose = index => {
    chooseWorkload(index);
    show();
  };
  buttons.forEach((button, i) => button.addEventListener('click', () => choose(i)));
  list?.addEventListener('change', () => choose(Number(list.value)));
  const parts = screens.map((screen, index) => startScreen(screen, index));
  views.push(() => {
    buttons.forEach((button, i) => button.setAttribute('aria-pressed', i === state.workload));
    if (list) list.value = state.workload;
    screens.forEach((screen, i) => screen.classList.toggle('away', i !== state.workload));
    parts[state.workload]();
  });
}

function startScreen(screen, index) {
  const workload = data.workloads[index], redraws = [];
  const zones = screen.querySelector('.zones'), shown = () => state.workload === index;
  if (zones && workload.start) {
    const slide = scaleSlider(at(`scale-${index}`), at(`scale-value-${index}`), zones.querySelector('.recorded'), zones.querySelector('.ticks'));
    const control = zones.querySelector('.scale-control'), place = element('div');
    zones.querySelector('.histogram').replaceWith(place);
    zones.querySelector('figcaption').remove();
    const redraw = figureIn(place, `zones ${workload.name}`, width => {
      const kept = {...state};  // paper shows every workload's beginning
      if (!shown()) chooseWorkload(index);
      const {ratio, formats, histogram, zones} = chosenValues();
      const result = {picture: drawHistogram(width, narrow.matches ? 300 : 306, histogram, ratio, zones, quantity(), formats, namesOfZones()),
        caption: `${tensorName()} of “${run().label}”, seed ${run().seed}, step ${exact(group().steps[state.step])} alone: of its own non-zero values ${interval(zones.lost, zones.finite)} ${state.kind === 'updates' ? 'are lost' : 'round to zero'}${scalable() ? ` at a loss scale of ${factorText()}` : ''}.${zoneKeys.some(key => interval(zones[key], zones.finite).includes('–')) && zones.finite > 0 ? ' ' + rangeWords : ''}`};
      Object.assign(state, kept);
      return result;
    }, true);
    redraws.push(() => {
      slide();
      control.hidden = !scalable();
      redraw();
    });
  }
  const training = screen.querySelector('.training'), kinds = curveKinds(workload);
  if (workload.configurations.some(c => c.curve.step.length > 0)) {
    const place = element('div'), bar = element('div', {className: 'curve-kinds', role: 'group'});
    bar.setAttribute('aria-label', 'Which curves');
    const chosen = () => kinds[state.curves] ?? kinds[0];
    const redraw = figureIn(place, `curves ${workload.name}`, width => plotted(lossPlot(workload, chosen()), width, narrow.matches ? 330 : 360));
    bar.append(...kinds.map(([, name], i) => {
      const button = element('button', {type: 'button', textContent: name});
      button.addEventListener('click', () => {
        state.curves = i;
        show();
      });
      return button;
    }));
    training.replaceChildren(bar, place, ...workload.configurations.length > 4 ? [curveChooser(workload, redraw)] : []);
    redraws.push(() => {
      [...bar.children].forEach((button, i) => button.setAttribute('aria-pressed', kinds[i] === chosen()));
      redraw();
    });
  } else training.replaceChildren(element('figcaption', {textContent: 'No step of training has been recorded yet.'}));
  return () => redraws.forEach(redraw => redraw());
}
