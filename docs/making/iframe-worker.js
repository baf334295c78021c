// Browsers refuse workers to pages that are opened from a folder: there the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inside.document.createElement("script")
      this.ready = new Promise(done => (script.onload = done))
      this.deliver = data => inside.dispatchEvent(new inside.MessageEvent("message", { data }))
      script.src = url
      inside.document.body.appendChild(script)
    }

    postMessage(data) {
      this.ready.then(() => this.deliver(data))
    }
  }
}
