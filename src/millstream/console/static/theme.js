// Before the page is painted: the theme the reader chose, if any.
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
