/* Ages count on by themselves: also, and above all, when the server says nothing any more. */
(function () {
  "use strict";
  function words(seconds) {
    if (seconds < 1) return "just now";
    if (seconds < 60) return Math.floor(seconds) + " s ago";
    if (seconds < 3600) return Math.floor(seconds / 60) + " min " + Math.floor(seconds % 60) + " s ago";
    if (seconds < 86400) return Math.floor(seconds / 3600) + " h " + Math.floor((seconds % 3600) / 60) + " min ago";
    return Math.floor(seconds / 86400) + " d " + Math.floor((seconds % 86400) / 3600) + " h ago";
  }
  function tick() {
    let silent = false;
    for (const element of document.querySelectorAll("[data-age-seconds]")) {
      const stamp = element.dataset.ageAt + element.dataset.ageSeconds;
      if (element._stamp !== stamp) {
        element._stamp = stamp;
        element._since = performance.now();
      }
      const seconds = Number(element.dataset.ageSeconds) + (performance.now() - element._since) / 1000;
      const text = words(seconds);
      if (element.textContent !== text) element.textContent = text;
      const limit = Number(element.dataset.silentAfter || 0);
      const old = limit > 0 && seconds > limit;
      element.classList.toggle("age-old", old);
      silent = silent || old;
    }
    document.body.classList.toggle("silent", silent);
  }
  setInterval(tick, 500);
  let queued = false;
  function soon() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(function () { queued = false; tick(); });
  }
  new MutationObserver(soon).observe(document.documentElement, { childList: true, subtree: true });
})();
