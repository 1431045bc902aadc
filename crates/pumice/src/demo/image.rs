//! The demo without a mount: files in a tar image, copied by an NBD client.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::server::{Server, path_text, write_amplification};
use super::tools::{command, installed, kill, run};
use super::{Outcome, copy_all, files, say, sources, total_bytes};

const LIMIT: Duration = Duration::from_secs(120);
/// Duration of writing the image again before the server is killed.
const WRITING_BEFORE_KILL: Duration = Duration::from_millis(300);

pub(super) fn write_kill_verify(folder: &Path) -> Result<Outcome> {
    for program in ["nbdcopy", "tar"] {
        if !installed(program) {
            bail!("{program} is not installed; scripts/deps.sh installs it");
        }
    }
    let sources = sources()?;
    say(&format!("Putting {} files into a tar image", sources.len()));
    let tree = folder.join("tree");
    let copied = copy_all(&sources, &tree)?;
    let image = folder.join("image");
    let (tree_text, image_text) = (path_text(&tree)?, path_text(&image)?);
    // A tar archive is padded to whole records, which are a multiple of the drive's sectors.
    run("tar", &["-cf", image_text, "-C", tree_text, "."], LIMIT)?;
    std::fs::remove_dir_all(&tree)?;

    let server = Server::start(folder)?;
    let uri = format!("nbd+unix:///?socket={}", Server::socket(folder).display());
    let since = Instant::now();
    run("nbdcopy", &["--flush", image_text, &uri], LIMIT)?;
    let wrote_in = since.elapsed();
    let write_amplification = write_amplification(&server.status()?);
    let bytes = total_bytes(&copied);
    say(&format!("Copied and flushed with nbdcopy in {:.1} s", wrote_in.as_secs_f64()));

    say("kill -9 the server while the same image is written over it again");
    let mut again = command("nbdcopy", &[image_text, &uri])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run nbdcopy")?;
    std::thread::sleep(WRITING_BEFORE_KILL);
    server.kill();
    kill(&mut again);

    let server = Server::restart(folder)?;
    let back = folder.join("back");
    run("nbdcopy", &[&uri, path_text(&back)?], LIMIT)?;
    std::fs::create_dir(&tree)?;
    run("tar", &["-xf", path_text(&back)?, "-C", tree_text], LIMIT)?;
    copied.iter().try_for_each(|one: &files::Copied| one.verify(&tree))?;
    say(&format!("Every one of the {} files is as it was written", copied.len()));
    let (status, ready_after) = (server.status()?, server.ready_after);
    server.stop()?;
    Ok(Outcome { files: copied.len(), bytes, wrote_in, write_amplification, status, ready_after })
}
