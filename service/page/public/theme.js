// Before anything is drawn, so that a chosen theme does not come after a flash of the other.
try {
  const theme = localStorage.getItem("rgrl-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system's own theme it is.
}
