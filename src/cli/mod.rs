//! The command line: one file a command. Data goes to stdout, everything else to stderr.

mod arguments;
mod backend;
mod check;
mod count;
mod devices;
mod drawing;
mod families;
mod floor;
mod output;
mod ready;
mod request;
mod run;
mod score;
mod show;
mod snapshot;
mod trace;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use vlm_spec::error::{Error, ErrorKind};

use self::arguments::{Arguments, Command, SchemaCommand};
use self::output::{Status, print_error};

/// Parses the arguments, runs the command, prints its error.
pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // help and version are answers, everything else is a usage error
            let status = if error.use_stderr() { Status::Usage } else { Status::Fine };
            let _ = error.print();
            return status.into();
        }
    };
    let result = match &arguments.command {
        Command::Families(command) => families::run(command),
        Command::Check(command) => check::run(command),
        Command::Floor(command) => floor::run(command),
        Command::Count(command) => count::run(command),
        Command::Snapshot(command) => snapshot::run(command),
        Command::Show(command) => show::run(command),
        Command::Schema(SchemaCommand { json: _ }) => {
            output::print_json(&vlm_spec::descriptor::family_schema()).map(|()| Status::Fine)
        }
        Command::Run(command) => run::run(command),
        Command::Trace(command) => trace::run(command),
        Command::Score(command) => score::run(command),
        Command::Devices(command) => devices::run(command),
    };
    match result {
        Ok(status) => status.into(),
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            output::note(&error.to_string());
            Status::Interrupted.into()
        }
        Err(error) => {
            print_error(&error);
            let asks_for_numbers = matches!(
                arguments.command,
                Command::Floor(_) | Command::Count(_) | Command::Snapshot(_)
            );
            status_of(&error, asks_for_numbers).into()
        }
    }
}

fn status_of(error: &Error, asks_for_numbers: bool) -> Status {
    match error.kind() {
        ErrorKind::NoNumber | ErrorKind::NoFamily if asks_for_numbers => Status::NoNumber,
        _ => Status::Usage,
    }
}
