// A number outside its range never leaves the browser: below the box stand what is taken and a button for the nearest
// such number. The style sheet greys the answer meanwhile, which belongs to the number before.
(() => {
  const BOX = '[data-testid="stNumberInputField"]', PLACE = '[data-testid="stNumberInput"]'
  const SET = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set
  // Whole numbers digit by digit: rounded, another number than the one that was typed would be refused.
  const text = value => Number(value).toLocaleString("en", {maximumSignificantDigits: Number.isInteger(Number(value)) ? 21 : 6})
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
  // A class rather than :has() in the style sheet, which the browser would look for again with all that is drawn.
  const mark = () => {
    const found = document.querySelector(`${BOX}[aria-invalid="true"]`) !== null
    document.documentElement.classList.toggle("refused", found)
    for (const line of document.querySelectorAll(".nearest"))
      if (nearest(line.closest(PLACE).querySelector(BOX)) === null) line.remove()
    // Another page has other boxes, none of which was ever changed.
    found ? gone.observe(document, {subtree: true, childList: true}) : gone.disconnect()
  }
  const gone = new MutationObserver(mark)
  new MutationObserver(mark).observe(document, {subtree: true, attributes: true, attributeFilter: ["aria-invalid"]})
  document.addEventListener("input", event => {
    const box = event.target, place = box.matches?.(BOX) && box.closest(PLACE)
    if (!place) return
    place.querySelector(":scope > .nearest")?.remove()
    const value = nearest(box)
    if (value !== null) place.append(said(box, value))
  }, true)
})()
