// The manual's search runs in a Worker, which browsers refuse to pages that are opened as files. There a frame of the page takes
// its place: the script that would be the Worker's gets a window of its own, and messages go both ways as events.
if (location.protocol === 'file:') {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement('iframe');
      frame.hidden = true;
      document.documentElement.append(frame);
      const inner = frame.contentWindow, load = source => new Promise((resolve, reject) => {
        const script = inner.document.createElement('script');
        Object.assign(script, {src: source, onload: resolve, onerror: reject});
        inner.document.documentElement.append(script);
      });
      inner.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      inner.postMessage = data => this.dispatchEvent(new MessageEvent('message', {data}));
      this.inner = inner;
      this.ready = load(new URL(url, location.href).href);
    }
    postMessage(data) { this.ready.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent('message', {data}))); }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
