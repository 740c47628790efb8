// A number outside its range never leaves the browser: below the box stand what is taken and a button for the nearest
// such number. The style sheet greys the answer meanwhile, which belongs to the number before.
(() => {
  const BOX = '[data-testid="stNumberInputField"]', PLACE = '[data-testid="stNumberInput"]'
  const SET = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set
  const text = value => Number(value).toLocaleString("en", {maximumSignificantDigits: 6})
  const nearest = box => box.validity.rangeOverflow ? box.max : box.validity.rangeUnderflow ? box.min : null
  const take = (box, value) => {
    SET.call(box, value)
    box.dispatchEvent(new Event("input", {bubbles: true}))
    box.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", code: "Enter", bubbles: true}))
  }
  const said = (box, value) => {
    const line = document.createElement("div"), button = document.createElement("button")
    line.className = "nearest"
    line.textContent = `${text(box.value)} is not possible: ${text(box.min)} to ${text(box.max)}`
    button.type = "button"
    button.textContent = `Use ${text(value)}`
    button.addEventListener("click", () => take(box, value))
    line.append(button)
    return line
  }
  document.addEventListener("input", event => {
    const box = event.target, place = box.matches?.(BOX) && box.closest(PLACE)
    if (!place) return
    place.querySelector(":scope > .nearest")?.remove()
    const value = nearest(box)
    if (value !== null) place.append(said(box, value))
  }, true)
})()
