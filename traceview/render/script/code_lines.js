/** Lines of code on the page of kernels: choose one, and all that comes from it lights up. */

const MARK = /^s\d+$/;
const CHOSEN = "chosen";

/** Choose lines by a click, in the source or in a listing. */
export function mountCode(/** @type {Document} */ page) {
	for (const code of page.querySelectorAll(".code")) {
		code.addEventListener("click", (event) => {
			const row = rowOf(event.target);
			if (row && !getSelection()?.toString()) choose(code, row);
		});
	}
}

/** @returns {Element | null} The line of code that was clicked, if it has a source line. */
function rowOf(/** @type {EventTarget | null} */ target) {
	const row = target instanceof Element ? target.closest(".lines > div") : null;
	return row && markOf(row) ? row : null;
}

function markOf(/** @type {Element} */ row) {
	return [...row.classList].find((name) => MARK.test(name)) ?? "";
}

/** A second click on a chosen line, other than on a link, ends the choice. */
function choose(/** @type {Element} */ code, /** @type {Element} */ row) {
	const again = row.classList.contains(CHOSEN);
	for (const each of code.querySelectorAll(`.${CHOSEN}`)) each.classList.remove(CHOSEN);
	code.classList.toggle("linked", !again);
	if (again) return;
	openListings(code);
	for (const each of code.querySelectorAll(`.${markOf(row)}`)) each.classList.add(CHOSEN);
	const own = row.closest(".scroll");
	for (const region of code.querySelectorAll(".scroll")) {
		if (region !== own) scrollToChosen(region);
	}
}

/** Where the reader has opened no listing, all are opened. */
function openListings(/** @type {Element} */ code) {
	const listings = [...code.querySelectorAll(".listings details")];
	if (listings.some((each) => each.hasAttribute("open"))) return;
	for (const each of listings) each.setAttribute("open", "");
}

function scrollToChosen(/** @type {Element} */ region) {
	const first = region.querySelector(`.${CHOSEN}`);
	if (!first) return;
	const offset = first.getBoundingClientRect().top - region.getBoundingClientRect().top;
	region.scrollTop += offset - region.clientHeight / 3;
}
