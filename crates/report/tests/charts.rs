//! Charts and tables with ordinary and unusual input.

use report::{Bar, BarChart, Chart, LineChart, Point, Table, Tornado};

/// Expects a displayable chart: complete SVG element, no NaN or infinity, no script or link, and a view box
/// for scaling.
fn assert_sound(chart: &Chart) {
    let svg = chart.svg();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("viewBox=\"0 0 "), "{svg}");
    for bad in ["NaN", "inf\"", "<script", "href", "<image"] {
        assert!(!svg.contains(bad), "{bad} in {svg}");
    }
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn bars_have_axes_legend_and_intervals() {
    let chart = BarChart::new("Ratio by type", "ratio, N:1")
        .series(["zstd", "lz4"])
        .group("text", [Bar::within(2.9, 2.7, 3.1), Bar::from(2.0)])
        .group("jpeg", [Bar::from(1.0), Bar::missing()]);
    let drawn = chart.draw();
    assert_sound(&drawn);
    for text in ["Ratio by type", "ratio, N:1", "text", "jpeg", "zstd", "lz4"] {
        assert!(drawn.svg().contains(&format!(">{text}<")), "{text} in {}", drawn.svg());
    }
    // The interval is drawn: without it there are fewer lines.
    let without = BarChart::new("Ratio by type", "ratio, N:1")
        .series(["zstd", "lz4"])
        .group("text", [2.9, 2.0])
        .group("jpeg", [1.0]);
    assert!(count(drawn.svg(), "<line") > count(without.draw().svg(), "<line"));
    // Stacked bars reach as high as their sum.
    assert!(!without.draw().svg().contains(">4<") && without.stacked().draw().svg().contains(">5<"));
}

#[test]
fn lying_bars_keep_their_order_from_the_top() {
    let svg = BarChart::new("t", "bytes")
        .group("first", [1.0])
        .group("last", [2.0])
        .lying()
        .draw()
        .svg()
        .to_string();
    let y = |name: &str| -> f64 {
        let before = &svg[..svg.find(&format!(">{name}<")).expect(name)];
        let start = before.rfind("y=\"").expect("y") + 3;
        svg[start..start + svg[start..].find('"').expect("end")].parse().expect("number")
    };
    assert!(y("first") < y("last"));
}

#[test]
fn lines_have_marks_and_logarithmic_axes() {
    let points = [(4.0, 1.6), (16.0, 1.8), (64.0, 1.9), (1024.0, 2.0)];
    let chart = LineChart::new("Unit", "unit, KiB", "ratio").series("lz4", points);
    let linear = chart.clone().draw();
    let log = chart.clone().log_x().mark(32.0, "here").draw();
    assert_sound(&linear);
    assert_sound(&log);
    assert!(log.svg().contains(">here<") && log.svg().contains(">100<"), "{}", log.svg());
    assert!(!linear.svg().contains(">100<"));
    let banded = LineChart::new("Unit", "unit, KiB", "ratio")
        .series("lz4", points.map(|(x, y)| Point::within(x, y, y - 1.0, y + 1.0)));
    assert_sound(&banded.draw());
    assert_ne!(banded.draw(), linear);
}

#[test]
fn what_cannot_be_drawn_is_left_out() {
    let nothing = LineChart::new("t", "x", "y").series("s", [(f64::NAN, 1.0), (1.0, f64::INFINITY)]).draw();
    assert!(nothing.svg().contains("no data"));
    let log = LineChart::new("t", "x", "y").log_x().log_y().series("s", [(0.0, 1.0), (1.0, -1.0)]);
    assert!(log.draw().svg().contains("no data"));
    assert_sound(&log.series("other", [(1.0, 1.0), (0.0, 5.0)]).mark(-1.0, "off").draw());
    assert!(BarChart::new("t", "y").draw().svg().contains("no data"));
    assert!(Tornado::new("t", "x", 1.0).input("a", f64::NAN, 1.0).draw().svg().contains("no data"));
    for bars in [[0.0, 0.0], [f64::NAN, f64::NAN], [-1.0, 1e300], [f64::INFINITY, 1e-300], [5.0, 5.0]] {
        assert_sound(&BarChart::new("t", "y").group("g", bars).draw());
        assert_sound(&BarChart::new("t", "y").group("g", bars).stacked().lying().draw());
        assert_sound(&LineChart::new("t", "x", "y").series("s", [(bars[0], bars[1])]).draw());
        assert_sound(&Tornado::new("t", "x", 1.0).input("i", bars[0], bars[1]).input("j", 1.0, 1.0).draw());
    }
}

#[test]
fn a_tornado_has_its_widest_input_on_top() {
    let chart = Tornado::new("What matters", "US$ per TBe", 389.19)
        .input("power", 385.0, 392.0)
        .input("ratio", 450.0, 340.0);
    let svg = chart.draw().svg().to_string();
    assert_sound(&chart.draw());
    let place = |name: &str| svg.find(&format!(">{name}<")).expect(name);
    let y = |name: &str| -> f64 {
        let before = &svg[..place(name)];
        let start = before.rfind("y=\"").expect("y") + 3;
        svg[start..start + svg[start..].find('"').expect("end")].parse().expect("number")
    };
    assert!(y("ratio") < y("power"));
    assert!(svg.contains("change of US$ per TBe (0 is 389.19)"), "{svg}");
    assert!(svg.contains(">input low<") && svg.contains(">input high<"));
}

#[test]
fn labels_are_neither_markup_nor_formulas() {
    let name = "a <b>&\"c\" $x^2$ \u{1}";
    let expected = "a &lt;b&gt;&amp;&quot;c&quot; $x^2$  ";
    let charts = [
        BarChart::new(name, name).series([name, "o"]).group(name, [1.0, 2.0]).draw(),
        LineChart::new(name, name, name).series(name, [(1.0, 1.0), (2.0, 2.0)]).mark(1.5, name).draw(),
        Tornado::new(name, name, 1.0).input(name, 0.0, 2.0).draw(),
    ];
    for chart in charts {
        assert_sound(&chart);
        assert!(!chart.svg().contains("<b>"), "{}", chart.svg());
        assert!(count(chart.svg(), expected) >= 2, "{}", chart.svg());
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
