/* Light or dark: the viewer's choice, else the system's. The store `theme` tells figures. */
(function () {
  "use strict";
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try { return localStorage.getItem("flightwatch-theme"); } catch (_error) { return null; }
  }
  function current() { return chosen() || (system.matches ? "dark" : "light"); }
  function apply() {
    const theme = current();
    document.documentElement.dataset.theme = theme;
    document.documentElement.dataset.agThemeMode = theme;
    const button = document.getElementById("theme-toggle");
    if (button) button.textContent = theme === "dark" ? "Light" : "Dark";
    return theme;
  }
  apply();
  system.addEventListener("change", function () {
    window.dash_clientside.set_props("theme", { data: apply() });
  });

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.flightwatchTheme = {
    toggle: function (clicks) {
      if (clicks) {
        try { localStorage.setItem("flightwatch-theme", current() === "dark" ? "light" : "dark"); } catch (_error) { /* private mode */ }
      }
      return apply();
    },
  };

  window.dashAgGridFunctions = window.dashAgGridFunctions || {};
  window.dashAgGridFunctions.flightwatchRatio = function (value) {
    return value === null || value === undefined ? "–" : value.toFixed(2) + "×";
  };
  window.dashAgGridFunctions.flightwatchGrid = {
    backgroundColor: "var(--surface)",
    foregroundColor: "var(--text)",
    headerBackgroundColor: "var(--surface-2)",
    headerTextColor: "var(--muted)",
    borderColor: "var(--line)",
    rowHoverColor: "var(--surface-2)",
    accentColor: "var(--accent)",
    fontFamily: "inherit",
    fontSize: 13,
    spacing: 4,
    cellHorizontalPadding: 8,
    wrapperBorder: false,
    wrapperBorderRadius: 0,
    oddRowBackgroundColor: "var(--surface)",
  };
})();
