//! Progress bars. They are on standard error, and visible on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};

/// Bar of bytes, with the remaining time.
pub(crate) const BYTES: &str = "{bar:40} {binary_bytes} of {binary_total_bytes}, {eta} left";

/// Returns a bar in the style of a template.
pub(crate) fn bar(total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    set_style(&bar, template);
    bar
}

/// Shows a bar in the style of a template.
pub(crate) fn set_style(bar: &ProgressBar, template: &str) {
    // Templates are constants. A wrong one leaves the style as it is.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_valid() {
        assert!(ProgressStyle::with_template(BYTES).is_ok());
    }
}
