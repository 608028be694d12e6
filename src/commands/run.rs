//! `stokehold run`: a PyTorch script with changes that its own code does not make.

use std::error::Error;
use std::ffi::OsString;
use std::process::{Command, ExitCode};

use clap::Args as ClapArgs;
use stokehold_base::words::plural;
use stokehold_cache::{SHARE_VARIABLE, VARIABLE as FOLDER_VARIABLE};
use stokehold_script::{Changes, Hook, Images, starts_no_hook};

use crate::failure::Usage;
use crate::supervise::{self, Signals};
use crate::terminal::note;

/// Run a PyTorch script with another loader, or other arguments of its own, without a change in its code.
///
/// Signals and the exit code of the command pass through. What cannot be changed stays as it is, with a message that says why.
#[derive(Debug, ClapArgs)]
#[command(override_usage = "stokehold run [OPTIONS] [--] COMMAND ..")]
pub struct Args {
    /// Make the batches of every DataLoader over torchvision's ImageFolder, if its transforms have an equal here. The
    /// script's Python needs the package stokehold. Images of the other loaders are made as with --fast-images.
    #[arg(long)]
    swap_loader: bool,
    /// Open JPEGs with stokehold.pillow and stokehold.decoders: the same pixels sooner, in any script that uses Pillow, cv2,
    /// torchvision.io, simplejpeg or PyTurboJPEG. The script's Python needs the package stokehold. At the end a line says how many images it made, and the CPU time saved.
    #[arg(long)]
    fast_images: bool,
    /// num_workers of every DataLoader, except of iterable data sets; also the threads of --swap-loader.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1024))]
    workers: Option<u64>,
    /// Keep the workers of a DataLoader from one epoch to the next.
    #[arg(long)]
    persistent_workers: bool,
    /// Have batches in pinned memory, which is copied to a GPU faster.
    #[arg(long)]
    pin_memory: bool,
    /// prefetch_factor of every DataLoader that has workers: the batches that each makes ahead.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    prefetch: Option<u64>,
    /// The command, with its arguments.
    #[arg(trailing_var_arg = true, value_name = "COMMAND", required = true)]
    command: Vec<OsString>,
}

/// Runs the subcommand.
///
/// # Errors
/// Nothing to change, or a Python that starts no hook; the hook's files cannot be written.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let changes = Changes {
        workers: args.workers,
        persistent: args.persistent_workers,
        pin: args.pin_memory,
        prefetch: args.prefetch,
        swap: args.swap_loader,
        // For the loaders that stay PyTorch's.
        images: args.fast_images || args.swap_loader,
        ..Changes::default()
    };
    if changes == Changes::default() {
        return Err(Usage(
            "what to change? Give --fast-images, --swap-loader, --workers N, --persistent-workers, --pin-memory or --prefetch N"
                .to_owned(),
        )
        .into());
    }
    let program = &args.command[0];
    if let Some(why) = starts_no_hook(&args.command) {
        return Err(Usage(why).into());
    }
    if is_set(SHARE_VARIABLE) && !is_set(FOLDER_VARIABLE) {
        note!("{SHARE_VARIABLE} changes nothing, because {FOLDER_VARIABLE} names no folder");
    }
    let signals = Signals::block()?;
    let folder = tempfile::tempdir()?;
    let changes = Changes {
        told: Some(folder.path().to_owned()),
        ..changes
    };
    let hook = Hook::new(&folder.path().join("hook"), &changes, None)?;
    let mut command = Command::new(program);
    command.args(&args.command[1..]);
    hook.set(&mut command);
    let child = match signals.restore_in(&mut command).spawn() {
        Ok(child) => child,
        Err(error) => return Ok(ExitCode::from(supervise::not_started(program, &error))),
    };
    let code = supervise::follow(&child, &signals)?.code;
    let (images, decoded) = (
        Images::read(folder.path(), "images"),
        Images::read(folder.path(), "decoders"),
    );
    let unmade = changes.unmade();
    if images.asked > 0 {
        note!("stokehold: {}", summary(&images, &PILLOW));
    }
    if decoded.asked + decoded.left > 0 {
        note!("stokehold: {}", summary(&decoded, &DECODERS));
    }
    // Not where the script failed, where the hook has said why images stay a library's, or where a loader of Stokehold's decodes them.
    let expected = args.fast_images && !args.swap_loader && code == 0 && !changes.left_some();
    if expected && unmade.is_none() && images.asked + decoded.asked + decoded.left == 0 {
        note!(
            "the script opened no JPEG with Pillow, cv2, torchvision.io, simplejpeg or PyTurboJPEG; other formats are read as before, and for another library's JPEGs there is stokehold.decode"
        );
    }
    if let Some(why) = unmade {
        note!("{why}");
    }
    Ok(ExitCode::from(code))
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// This many images are compared with Pillow's before their times are those of all.
const ENOUGH: u64 = 20;

/// How a summary calls those who make images.
struct Names {
    opened: [&'static str; 2],
    module: &'static str,
    variable: &'static str,
    others: &'static str,
}

const PILLOW: Names = Names {
    opened: ["JPEG was opened", "JPEGs were opened"],
    module: "stokehold.pillow",
    variable: "STOKEHOLD_PILLOW",
    others: "Pillow",
};

const DECODERS: Names = Names {
    opened: [
        "image was asked of cv2, torchvision.io, simplejpeg or PyTurboJPEG",
        "images were asked of cv2, torchvision.io, simplejpeg or PyTurboJPEG",
    ],
    module: "stokehold.decoders",
    variable: "STOKEHOLD_DECODERS",
    others: "the library",
};

/// What fast images were, and why Pillow or another library made some.
fn summary(images: &Images, names: &Names) -> String {
    let Names {
        opened,
        module,
        variable,
        others,
    } = names;
    let processes = match images.processes {
        1 => String::new(),
        n => format!(" in {n} processes"),
    };
    let mut text = format!(
        "{} {}{processes}, and {module} made {} of them",
        images.asked,
        opened[usize::from(images.asked != 1)],
        plural(images.made as usize, "image")
    );
    if images.cached > 0 {
        text += &format!("; {} came from the image cache", images.cached);
    }
    if images.different > 0 {
        text += &format!(
            "; {} differed from those of {others}, which took over in those processes: please report this",
            images.different
        );
    }
    let equal = images.compared - images.different.min(images.compared);
    match images.saved_seconds() {
        Some(saved) if images.compared >= ENOUGH => {
            let ratio = images.library_seconds / images.own_seconds.max(1e-9);
            let saving = match saved > 0.0 {
                true => format!("{saved:.1} s were saved"),
                false => "nothing was saved".to_owned(),
            };
            text += &format!(
                "; {} were made by {others}, too: {equal} were equal, and took {ratio:.1} times the CPU time there, so {saving}",
                images.compared
            );
        }
        Some(_) => {
            text += &format!(
                "; {} were made by {others}, too: {equal} were equal; too few to say what was saved, which takes {ENOUGH} ({variable}=check:4 compares every fourth)",
                images.compared
            );
        }
        None => {}
    }
    if images.left > 0 {
        let reasons: Vec<_> = images
            .main_reasons()
            .iter()
            .map(|(reason, count)| format!("{count} because: {reason}"))
            .collect();
        text += &format!("; {others} made {}: {}", images.left, reasons.join(", "));
    }
    text
}
