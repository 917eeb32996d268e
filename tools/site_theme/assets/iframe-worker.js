// A browser starts no worker for a page that was opened from the disk, and the search needs one. There it runs in a
// hidden frame instead, which has a worker's way of hearing and answering.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.started = new Promise((start, fail) => {
        const script = this.inside.document.createElement("script");
        script.src = new URL(url, location.href).href;
        script.onload = start;
        script.onerror = () => fail(new Error(`${script.src} cannot be read`));
        this.inside.document.body.append(script);
      });
    }

    async postMessage(data) {
      await this.started;
      this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
