/** Elements made from a tag, attributes and children. Texts become text nodes, never markup. */

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string>} attributes
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/**
 * @param {string} label
 * @param {(event: MouseEvent) => void} act
 * @param {string} [kind] class of the button
 * @returns {HTMLButtonElement}
 */
export function button(label, act, kind = "tool") {
  const made = element("button", { type: "button", class: kind }, label);
  made.addEventListener("click", act);
  return made;
}

/** Give a button a longer name than it shows. @param {HTMLElement} made @param {string} name */
export function named(made, name) {
  made.title = name;
  made.setAttribute("aria-label", name);
  return made;
}

/**
 * The elements that a selector finds, as an array.
 * @template {Element} [Found=HTMLElement]
 * @param {ParentNode} within
 * @param {string} selector
 * @returns {Found[]}
 */
export function all(within, selector) {
  return /** @type {Found[]} */ ([...within.querySelectorAll(selector)]);
}
