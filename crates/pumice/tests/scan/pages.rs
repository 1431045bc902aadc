//! Pages of all commands in a real browser.

use std::path::Path;
use std::process::Command;

use super::common::{Outcome, needs, pumice, sample};

/// No page scrolls sideways, has text that is too small, or has text that cannot be told from its background:
/// at the widths of a phone, a tablet and a desktop, light and dark.
#[test]
fn pages_fit_every_window() -> Outcome {
    if !needs(&["python3", "chromium"]) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let long = folder.path().join("data/a/folder/whose/path/is/as/long/as/they/come/in/some/source/trees");
    std::fs::create_dir_all(&long)?;
    std::fs::write(long.join("text.txt"), sample(3, 1 << 20))?;
    std::fs::write(at("data/zeros.img"), vec![0; 1 << 20])?;
    let (scan, tco) = (at("scan.html"), at("tco.html"));
    for made in [
        pumice(&["scan", &at("data"), "--html", &scan]),
        pumice(&["tco", "--preset", "four-ways", "--sweep", "drive.afr=0.001..0.02", "--html", &tco]),
    ] {
        assert_eq!(made.code, Some(0), "{made:?}");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/report-widths.py");
    let output = Command::new("python3").arg(script).args([&scan, &tco]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("2 pages, 3 widths, 2 schemes: 0 faults"), "{text}");
    Ok(())
}
