/* Liveness: which page is shown, what moved, and when to redraw.
 *
 * Counters come by websocket (store `pulse`), or, when none has come for a while, by asking /api/v1/revisions every five
 * seconds. A page is told to look again (store `revision`) only when its own run moved, the tab is visible, and the last
 * redraw has ended; so a slow browser redraws less often instead of falling behind.
 */
(function () {
  "use strict";
  const QUIET_MS = 12000; // the socket's server says something at least every 10 s
  const GAP_MS = 1000;
  const SLOW_MS = 10000; // hosts are sampled every few seconds and kept for ten on the server
  const STUCK_MS = 15000;
  const state = { counters: {}, heard: -Infinity, sent: 0, slow: 0, waiting: false, pending: false, n: 0, scope: "", shown: "" };

  function digest() {
    if (state.scope) return state.counters[state.scope] || "";
    return JSON.stringify(state.counters);
  }

  function offer() {
    const now = performance.now();
    if (document.hidden) { state.pending = true; return; }
    if (state.waiting && now - state.sent < STUCK_MS) { state.pending = true; return; }
    if (now - state.sent < GAP_MS) {
      state.pending = true;
      setTimeout(flush, GAP_MS - (now - state.sent) + 5);
      return;
    }
    if (digest() === state.shown) { state.pending = false; return; }
    state.pending = false;
    state.waiting = Boolean(document.querySelector("#run-heatmap, #incident-heatmap"));
    state.sent = now;
    state.shown = digest();
    state.n += 1;
    window.dash_clientside.set_props("revision", { data: { n: state.n, scope: state.scope } });
    if (now - state.slow >= SLOW_MS) {
      state.slow = now;
      window.dash_clientside.set_props("slow-revision", { data: { n: state.n } });
    }
  }

  function flush() { if (state.pending) offer(); }
  document.addEventListener("visibilitychange", flush);

  function show(text, good) {
    const badge = document.getElementById("link-state");
    if (!badge || badge.dataset.text === text) return;
    badge.dataset.text = text;
    badge.textContent = text;
    badge.classList.toggle("good", good);
  }

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.flightwatch = {
    pulse: function (data) {
      if (!data) return window.dash_clientside.no_update;
      state.heard = performance.now();
      Object.assign(state.counters, data.counters || {});
      show("live", true);
      offer();
      return window.dash_clientside.no_update;
    },
    fallback: async function () {
      if (performance.now() - state.heard < QUIET_MS || document.hidden) return window.dash_clientside.no_update;
      try {
        const answer = await fetch("/api/v1/revisions");
        if (!answer.ok) throw new Error(String(answer.status));
        Object.assign(state.counters, await answer.json());
        show("every 5 s", true);
        offer();
      } catch (_error) {
        show("server does not answer", false);
      }
      return window.dash_clientside.no_update;
    },
    scope: function (scope) {
      state.scope = scope || "";
      state.shown = digest();
      state.waiting = false;
      return window.dash_clientside.no_update;
    },
    drawn: function () {
      state.waiting = false;
      flush();
      return window.dash_clientside.no_update;
    },
    drawnIncident: function () {
      return window.dash_clientside.flightwatch.drawn();
    },
    title: function (text) {
      if (text) document.title = text;
      return window.dash_clientside.no_update;
    },
  };
})();
