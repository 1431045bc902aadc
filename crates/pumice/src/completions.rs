//! `pumice completions`: shell completions, generated from the definition of the command line.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

#[derive(clap::Args)]
#[command(after_help = "Example: pumice completions bash > /usr/share/bash-completion/completions/pumice")]
pub(crate) struct Args {
    /// Shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "pumice", &mut script);
    Ok(crate::output::stdout().write_all(&script)?)
}
