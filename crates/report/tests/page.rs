//! HTML pages are complete, self-contained and safe.

use report::{BarChart, LineChart, Page, Table};

mod readable;

fn page() -> String {
    let mut table = Table::new(["what", "US$"]).right_from(1);
    table.row(["<script>alert(1)</script>", "565.09"]);
    let bars = BarChart::new("Bars", "US$").group("a", [1.0]).draw();
    let lines = LineChart::new("Lines", "x", "y").series("s", [(1.0, 1.0), (2.0, 3.0)]).draw();
    Page::new("Cost & <value>")
        .made("2026-11-25 18:23:10 UTC", "pumice <tco>")
        .paragraph("A paragraph with <em>markup</em> that is none.")
        .heading("Numbers")
        .captioned_table("The \"table\"", &table)
        .list(["one <", "two >"])
        .preformatted("pumice tco --preset snia-2023\n  <x>")
        .chart(&bars)
        .chart(&lines)
        .to_html()
}

#[test]
fn text_is_escaped() {
    let html = page();
    for markup in ["<script", "<em>", "<value>", "<x>", "<tco>"] {
        assert!(!html.contains(markup), "{markup} in {html}");
    }
    assert!(
        html.contains("Cost &#38; &#60;value&#62;") || html.contains("Cost &amp; &lt;value&gt;"),
        "{html}"
    );
    assert!(html.contains("alert(1)"));
}

/// Names of files and objects come from outside: they must not turn the text around them.
#[test]
fn characters_that_are_not_visible_are_not_in_the_page() {
    let hostile = "invoice\u{202e}fdp.exe\u{1b}[31m\u{2066}\u{200f}\u{85}\u{61c}";
    let mut table = Table::new([hostile]);
    table.row([hostile]);
    let empty = BarChart::new(hostile, "y").draw();
    let chart = BarChart::new(hostile, hostile).group(hostile, [1.0]).draw();
    let html = Page::new(hostile)
        .heading(hostile)
        .paragraph(hostile)
        .list([hostile])
        .preformatted(&format!("one\n{hostile}\ntwo"))
        .captioned_table(hostile, &table)
        .chart(&empty)
        .chart(&chart)
        .to_html();
    let shown = "invoice fdp.exe [31m    ";
    assert!(html.matches(shown).count() >= 10, "{html}");
    assert!(html.contains(&format!("one\n{shown}\ntwo")), "{html}");
    let hidden = |c: &char| c.is_control() && *c != '\n' || hostile.contains(*c) && !c.is_ascii();
    assert_eq!(html.chars().filter(hidden).count(), 0, "{html:?}");
}

#[test]
fn it_needs_nothing_from_elsewhere() {
    let html = page();
    for link in ["href=", "src=", "@import", "url(http", "//cdn"] {
        assert!(!html.contains(link), "{link} in {html}");
    }
    // The only URL is the SVG namespace.
    assert_eq!(
        html.matches("http").count(),
        html.matches("http://www.w3.org/2000/svg").count() + html.matches("http-equiv").count()
    );
}

#[test]
fn it_is_readable_and_says_when_it_was_made() {
    let html = page();
    readable::assert_readable(&html);
    assert!(html.contains("<p class=\"made\">2026-11-25 18:23:10 UTC, pumice "), "{html}");
}

#[test]
fn it_is_complete_and_in_order() {
    let html = page();
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    let places: Vec<usize> = [
        "<h1>",
        "<p class=\"made\">",
        "<p>",
        "<h2>",
        "<table>",
        "<ul>",
        "<pre>",
        "aria-label=\"Bars\"",
        "aria-label=\"Lines\"",
    ]
    .map(|part| html.find(part).expect(part))
    .to_vec();
    assert!(places.is_sorted(), "{places:?}");
    assert!(html.contains("<td class=\"right\">565.09</td>"), "{html}");
}

#[test]
fn names_inside_pictures_do_not_collide() {
    let html = page();
    let names: Vec<&str> = html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert!(names.len() >= 2, "the pictures no longer name anything: {names:?}");
    assert_eq!(names.len(), unique.len(), "{names:?}");
    for used in html.split("url(#").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(names.contains(&used), "{used} is not defined");
    }
}
