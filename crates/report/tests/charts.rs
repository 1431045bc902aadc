//! Charts and tables with ordinary and unusual input.

use report::{Bar, BarChart, Chart, LineChart, Page, Point, Table, Tornado};

mod readable;

/// Expects a displayable chart: as many ends as beginnings of its parts, no NaN or infinity, no script or
/// link.
fn assert_sound(chart: &Chart) {
    let html = chart.html();
    for part in ["div", "svg", "ul", "figcaption"] {
        assert_eq!(count(html, &format!("<{part}")), count(html, &format!("</{part}>")), "{part}: {html}");
    }
    for bad in ["NaN", "inf\"", "inf%", "<script", "href", "<image"] {
        assert!(!html.contains(bad), "{bad} in {html}");
    }
    readable::assert_readable(&Page::new("t").chart(chart).to_html());
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

/// Bars of a chart: the values that are printed beside them.
fn values(chart: &Chart) -> Vec<String> {
    let after = chart.html().split("class=\"value").skip(1);
    let text = |rest: &str| {
        let inside = rest.split_once('>').map_or("", |(_, inside)| inside);
        let inside = inside.split("</div>").next().unwrap_or("");
        inside.rsplit("</span>").next().unwrap_or("").to_string()
    };
    after.map(text).collect()
}

#[test]
fn bars_have_a_legend_values_and_intervals() {
    let chart = BarChart::new("Ratio by type", "ratio, N:1")
        .series(["zstd", "lz4"])
        .group("text", [Bar::within(2.9, 2.7, 3.1), Bar::from(2.0)])
        .group("jpeg", [Bar::from(1.0), Bar::Missing]);
    let drawn = chart.draw();
    assert_sound(&drawn);
    for text in ["Ratio by type", "ratio, N:1", ">text<", ">jpeg<", "</i>zstd<", "</i>lz4<"] {
        assert!(drawn.html().contains(text), "{text} in {}", drawn.html());
    }
    assert_eq!(values(&drawn), ["2.90 (2.70 to 3.10)", "2.00", "1.00"]);
    assert_eq!(count(drawn.html(), "<u "), 1, "one interval");
    let stacked = BarChart::new("t", "y").series(["a", "b"]).group("g", [2.9, 2.0]).stacked().draw();
    assert_sound(&stacked);
    assert_eq!(values(&stacked), ["4.90"]);
}

/// The best ratio has no number, because nothing is stored: it must not look like the worst.
#[test]
fn the_unknown_is_no_bar_of_zero() {
    let chart = BarChart::new("t", "y").group("g", [Bar::Unknown, Bar::from(0.0), Bar::from(f64::NAN)]);
    let drawn = chart.draw();
    assert_sound(&drawn);
    assert_eq!(values(&drawn), ["unknown", "0", "unknown"]);
    assert_eq!(count(drawn.html(), "<i class=\"s"), 1, "{}", drawn.html());
    assert_eq!(values(&chart.stacked().draw()), ["unknown"]);
}

#[test]
fn a_bar_beyond_the_axis_is_marked_and_keeps_its_value() {
    let chart = BarChart::new("t", "y").group("a", [2.0]).group("b", [1000.0]).drawn_up_to(20.0).draw();
    assert_sound(&chart);
    assert_eq!(values(&chart), ["2.00", "1000"]);
    assert_eq!(count(chart.html(), "<em>"), 1);
    assert!(chart.html().contains("width:10.00%") && chart.html().contains("width:100.00%"));
}

#[test]
fn lines_have_marks_and_logarithmic_axes() {
    let points = [(4.0, 1.6), (16.0, 1.8), (64.0, 1.9), (1024.0, 2.0)];
    let chart = LineChart::new("Unit", "unit, KiB", "ratio").series("lz4", points);
    let linear = chart.clone().draw();
    let log = chart.clone().log_x().mark(32.0, "here").draw();
    assert_sound(&linear);
    assert_sound(&log);
    assert!(log.html().contains("here (32.0)") && log.html().contains(">10<"), "{}", log.html());
    assert!(!linear.html().contains(">10<"));
    assert_eq!(count(linear.html(), "<svg viewBox"), 2, "one for desktops, one for phones");
    let banded = LineChart::new("Unit", "unit, KiB", "ratio")
        .series("lz4", points.map(|(x, y)| Point::within(x, y, y - 1.0, y + 1.0)));
    assert_sound(&banded.draw());
    assert_ne!(banded.draw(), linear);
}

#[test]
fn lines_that_coincide_are_named_and_all_visible() {
    let line = |up: f64| [(1.0, 1.0 + up), (2.0, 3.0 + up)];
    let chart = LineChart::new("t", "x", "y").series("a", line(0.0)).series("b", line(1.0));
    assert!(!chart.clone().draw().html().contains("coincide"));
    let drawn = chart.series("c", line(0.001)).series("d", line(0.0)).draw();
    assert_sound(&drawn);
    assert!(drawn.html().contains(">a, c and d coincide.<"), "{}", drawn.html());
    // Those on top have gaps.
    for dashes in ["9 6", "2 5", "12 4 2 4"] {
        assert_eq!(count(drawn.html(), &format!("stroke-dasharray=\"{dashes}\"")), 3, "{dashes}");
    }
}

#[test]
fn what_cannot_be_drawn_is_left_out() {
    let nothing = LineChart::new("t", "x", "y").series("s", [(f64::NAN, 1.0), (1.0, f64::INFINITY)]).draw();
    assert!(nothing.html().contains("no data"));
    let log = LineChart::new("t", "x", "y").log_x().log_y().series("s", [(0.0, 1.0), (1.0, -1.0)]);
    assert!(log.draw().html().contains("no data"));
    assert_sound(&log.series("other", [(1.0, 1.0), (0.0, 5.0)]).mark(-1.0, "off").draw());
    assert!(BarChart::new("t", "y").draw().html().contains("no data"));
    assert!(Tornado::new("t", "x", 1.0).input("a", f64::NAN, 1.0).draw().html().contains("no data"));
    for bars in [[0.0, 0.0], [f64::NAN, f64::NAN], [-1.0, 1e300], [f64::INFINITY, 1e-300], [5.0, 5.0]] {
        assert_sound(&BarChart::new("t", "y").group("g", bars).draw());
        assert_sound(&BarChart::new("t", "y").group("g", bars).stacked().draw());
        assert_sound(&LineChart::new("t", "x", "y").series("s", [(bars[0], bars[1])]).draw());
        assert_sound(&Tornado::new("t", "x", 1.0).input("i", bars[0], bars[1]).input("j", 1.0, 1.0).draw());
    }
}

#[test]
fn a_tornado_has_its_widest_input_on_top() {
    let chart = Tornado::new("What matters", "US$ per TBe", 389.19)
        .input("power", 385.0, 392.0)
        .input("ratio", 450.0, 340.0);
    let html = chart.draw().html().to_string();
    assert_sound(&chart.draw());
    let place = |name: &str| html.find(&format!(">{name}<")).expect(name);
    assert!(place("ratio") < place("power"));
    assert!(html.contains("US$ per TBe, 389 as it is"), "{html}");
    assert!(html.contains(">input low<") && html.contains(">input high<"));
    assert_eq!(values(&chart.draw()), ["450 to 340", "385 to 392"]);
}

#[test]
fn labels_are_neither_markup_nor_formulas() {
    let name = "a <b>&\"c\" $x^2$ \u{1}";
    let charts = [
        BarChart::new(name, name).series([name, "o"]).group(name, [1.0, 2.0]).draw(),
        LineChart::new(name, name, name).series(name, [(1.0, 1.0), (2.0, 2.0)]).mark(1.5, name).draw(),
        Tornado::new(name, name, 1.0).input(name, 0.0, 2.0).draw(),
    ];
    for chart in charts {
        assert_sound(&chart);
        let html = chart.html();
        assert!(!html.contains("<b>") && !html.contains('\u{1}'), "{html}");
        let escaped = ["a &#60;b&#62;&#38;&#34;c&#34; $x^2$  ", "a &lt;b&gt;&amp;&quot;c&quot; $x^2$  "];
        assert!(escaped.iter().map(|name| count(html, name)).sum::<usize>() >= 2, "{html}");
    }
}

#[test]
fn tables_as_text() {
    let mut table = Table::new(["codec", "MB/s"]).right_from(1);
    table.row(["lz4", "639"]).row(["zstd 1", "7"]).row(["none\u{1b}[31m"]);
    let text = table.to_text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(text.ends_with('\n') && !text.contains('\u{1b}'), "{text:?}");
    let end = |word: &str| lines.iter().find_map(|l| l.find(word).map(|at| at + word.len())).expect(word);
    assert_eq!(end("639"), end("MB/s"));
    assert_eq!(lines.iter().filter(|l| l.contains("zstd 1")).count(), 1, "{text}");
    assert!(Table::default().to_text().trim().is_empty());
}
