// An entry of the browser's history is a page as its reader left it. Streamlit makes one for every parameter that a
// page puts into its address or takes out; and before it goes to another page, it writes that page's parameters under
// the name of this one.
(() => {
  const push = history.pushState
  let left = null
  document.addEventListener("click", () => { left = location.href }, true)
  history.pushState = function (state, title, url) {
    const path = new URL(url ?? "", location.href).pathname
    if (path === location.pathname) return this.replaceState(state, title, url)
    if (left !== null && new URL(left).pathname === location.pathname) this.replaceState(this.state, title, left)
    left = null
    return push.call(this, state, title, url)
  }
})()
