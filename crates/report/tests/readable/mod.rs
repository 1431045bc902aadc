//! Properties of a page that make it readable in any window and scheme, as far as they show without a
//! browser. `scripts/report-widths.py` measures the rest in one.

/// Least height of text, in CSS pixels.
const TEXT_PX_MIN: f64 = 11.0;

/// Text that follows each occurrence of `before`, up to one of the ends.
fn after<'a>(text: &'a str, before: &'a str, ends: &'a [char]) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).map(move |rest| rest.split(ends).next().unwrap_or(""))
}

/// Expects a page that adapts to windows and schemes, and shows no number that is none.
pub(crate) fn assert_readable(html: &str) {
    let (style, body) = html.split_once("</style>").expect("a style sheet");
    assert!(style.contains("name=\"viewport\" content=\"width=device-width"), "{style}");
    assert!(style.contains("prefers-color-scheme: dark") && style.contains("color-scheme: light dark"));
    let (screen, _) = style.split_once("@media print").expect("rules for paper");
    for size in after(screen, "font-size: ", &[';', ' ', '}']) {
        let rem: f64 = size.strip_suffix("rem").expect("in rem").parse().expect("a number");
        assert!(rem * 16.0 >= TEXT_PX_MIN, "{size}");
    }
    assert!(style.contains("svg { max-width: 100%"), "pictures shrink with the window");
    assert!(style.contains(".table { overflow-x: auto"), "wide tables scroll inside themselves");
    assert_eq!(body.matches("<table>").count(), body.matches("<div class=\"table\"").count());
    for svg in after(body, "<svg ", &['>']).filter(|svg| !svg.contains("class=\"key\"")) {
        assert!(svg.contains("viewBox=\"0 0 "), "{svg}");
    }
    assert_eq!(body.matches("class=\"wide\"").count(), body.matches("class=\"narrow\"").count());
    for size in after(body, "font-size=\"", &['"']) {
        assert!(size.parse::<f64>().expect("a number") >= TEXT_PX_MIN, "{size}");
    }
    for share in after(body, "left:", &['%']).chain(after(body, ";width:", &['%'])) {
        let share: f64 = share.parse().expect("a number");
        assert!((0.0..=100.0).contains(&share), "{share}");
    }
    for wrong in ["NaN", ">inf", "inf%", "undefined", "null"] {
        assert!(!body.contains(wrong), "{wrong} in {body}");
    }
}
