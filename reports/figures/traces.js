// Scale traces of a replay: one strip for every policy that did something of its own, all with the same axes.
function distinctTraces(policies) {
  const strips = new Map();
  for (const {label, ...trace} of policies) {
    const key = JSON.stringify(trace);
    if (strips.has(key)) strips.get(key).labels.push(label);
    else strips.set(key, {...trace, labels: [label]});
  }
  return [...strips.values()];
}

const traceColumns = width => Math.max(1, Math.min(3, Math.floor((width + 18) / (width < 420 ? 200 : 330))));

// {kind: "traces", policies, first, last, highest, one_percent}: all strips of a replay.
function drawTraces({policies, first, last, highest, one_percent}, room) {
  const scales = [...policies.flatMap(p => [...p.lower, ...(p.upper ?? [])]), ...highest].map(([, k]) => k);
  const low = Math.floor(Math.min(0, ...scales)), high = Math.ceil(Math.max(1, ...scales));
  const columns = traceColumns(room);
  const width = Math.floor((room - 18 * (columns - 1)) / columns), left = 36, right = 10, bottom = 32, tall = width < 250 ? 48 : 66;
  const x = step => left + (step - first) / Math.max(1, last - first) * (width - left - right);
  const y = k => tall - (Math.max(low, Math.min(high, k)) - low) / (high - low) * tall;  // below the names
  // A scale holds until its next change.
  const corners = path => path.flatMap(([step, k], i) => [[x(step), y(k)], [x(path[i + 1]?.[0] ?? last), y(k)]]);
  const ticks = [...new Set([low, Math.round((low + high) / 2), high])];
  const allowed = corners(highest), enough = corners(one_percent);
  return distinctTraces(policies).map(policy => {
    const names = wrapped(policy.labels.join(', '), width - right, boldSize), top = 10 + 15 * names.length, height = top + tall + bottom;
    const certain = policy.skipped, possible = (policy.possible ?? []).filter(step => !certain.includes(step));
    const strip = picture(width, height, `${policy.labels.join(', ')}: loss scale over steps; skipped steps drawn: ${certain.length}` + (possible.length ? `, perhaps ${possible.length} more` : ''), {class: 'strip'});
    names.forEach((words, i) => strip.append(svg('text', {x: 0, y: 14 + 15 * i, class: 'zone-name'}, words)));
    const plot = svg('g', {transform: `translate(0 ${top})`});
    strip.append(plot);
    for (const k of ticks)
      plot.append(svg('line', {x1: left, x2: width - right, y1: y(k), y2: y(k), class: 'grid'}),
                  svg('text', {x: left - 5, y: y(k) + 4, 'text-anchor': 'end', class: 'soft'}, power(k)));
    if (allowed.length > 0) plot.append(svg('path', {d: path([...allowed, ...[...enough].reverse()]) + 'Z', class: 'allowed'}), svg('path', {d: path(allowed), class: 'highest'}));
    const lower = corners(policy.lower);
    if (policy.upper) {
      const upper = corners(policy.upper);
      plot.append(svg('path', {d: path([...lower, ...[...upper].reverse()]) + 'Z', class: 'between'}), svg('path', {d: path(upper), class: 'trace'}));
    }
    plot.append(svg('path', {d: path(lower), class: 'trace'}));
    // Skipped steps are below the axis: crosses, and rings for those that may have been skipped.
    const row = tall + 8;
    for (const step of certain) plot.append(svg('path', {d: `M${(x(step) - 3).toFixed(1)},${row - 3}l6,6m0,-6l-6,6`, class: 'skip'}));
    for (const step of possible) plot.append(svg('circle', {cx: x(step).toFixed(1), cy: row, r: 2.6, class: 'may-skip'}));
    plot.append(svg('line', {x1: left, x2: width - right, y1: tall, y2: tall, class: 'axis'}),
                svg('text', {x: left, y: tall + bottom - 5, class: 'soft'}, `step ${exact(first)}`),
                svg('text', {x: width - right, y: tall + bottom - 5, 'text-anchor': 'end', class: 'soft'}, exact(last)));
    return strip;
  });
}
