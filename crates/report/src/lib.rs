//! Output of the measuring commands: tables for the terminal, charts, and single-file HTML pages.
//!
//! A page is self-contained: it refers to no external script, font, picture or style sheet. It can be mailed
//! and opened without a network. All text is escaped; no input is interpreted as markup. It fits windows from
//! 320 pixels on, and follows the reader's choice of a light or a dark scheme.
//!
//! ```
//! use report::{BarChart, Page, Table};
//!
//! let mut table = Table::new(["codec", "MB/s"]).right_from(1);
//! table.row(["lz4", "639"]);
//! let chart = BarChart::new("Compression", "MB/s per core").series(["4 KiB"]).group("lz4", [639.0]);
//! let page = Page::new("Codecs").paragraph("Measured on one core.").table(&table).chart(&chart.draw());
//! assert!(page.to_html().starts_with("<!DOCTYPE html>"));
//! print!("{}", table.to_text());
//! ```

#![forbid(unsafe_code)]

mod bars;
mod chart;
mod date;
mod lines;
mod number;
mod page;
mod plain;
mod scale;
mod table;
mod tornado;

pub use bars::{Bar, BarChart};
pub use chart::Chart;
pub use date::utc;
pub use lines::{LineChart, Point};
pub use page::Page;
pub use table::Table;
pub use tornado::Tornado;
