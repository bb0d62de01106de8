// The frame around every view: navigation, the state of the server, and which view stands at which place.

import type { ComponentType } from "preact";
import { lazy, Suspense } from "preact/compat";

import { reached } from "./api/client";
import { useAskOwnKey } from "./api/own-key";
import { useQuery } from "./api/query";
import type { Info } from "./api/types";
import { Aliases } from "./aliases/view";
import { ConfirmHost } from "./components/dialog";
import { FocusKeeper } from "./components/focus";
import { Icon, type IconName } from "./components/icons";
import { Keyboard, showShortcuts } from "./components/keyboard";
import { Empty, Loading } from "./components/notes";
import { SignIn } from "./components/sign-in";
import { ToastHost } from "./components/toasts";
import { View } from "./components/view";
import { Graphs } from "./graphs/view";
import { Jobs } from "./jobs/view";
import { Keys } from "./keys/view";
import { Overview } from "./overview/view";
import { usePlace } from "./router";
import { useValue } from "./state";
import { nextTheme, theme, type Theme } from "./theme";

/** What a view is given: the parts of the place after its own name. */
export interface PlaceProps {
  path: string[];
  query: URLSearchParams;
}

// With the map, the larger part of the page: fetched when it is first looked at.
const Embeddings = lazy(() => import("./embeddings/view").then(({ Embeddings }) => Embeddings));

const VIEWS: [string, string, IconName, ComponentType<PlaceProps>][] = [
  ["", "Overview", "overview", Overview],
  ["jobs", "Jobs", "jobs", Jobs],
  ["graphs", "Graphs", "graphs", Graphs],
  ["embeddings", "Embeddings", "embeddings", Embeddings],
  ["aliases", "Aliases", "aliases", Aliases],
  ["keys", "API keys", "keys", Keys],
];

const THEMES: Record<Theme, [IconName, string]> = {
  system: ["system", "Theme: as the system"],
  light: ["sun", "Theme: light"],
  dark: ["moon", "Theme: dark"],
};

export function App() {
  const { path, query } = usePlace();
  useAskOwnKey();
  const [name = "", ...rest] = path;
  const Shown = VIEWS.find(([known]) => known === name)?.[3];
  return (
    <>
      <button type="button" class="skip" onClick={() => document.querySelector<HTMLElement>("#main h1")?.focus()}>
        Skip to content
      </button>
      <div class="frame">
        <Sidebar name={name} />
        <main id="main">
          <Lost />
          {Shown ? (
            <Suspense fallback={<Loading />}>
              <Shown key={path.join("/")} path={rest} query={query} />
            </Suspense>
          ) : (
            <View title="Nothing here">
              <Empty title="The page has no such place">
                <p>
                  <a href="#/">To the overview</a>
                </p>
              </Empty>
            </View>
          )}
        </main>
      </div>
      <ToastHost />
      <ConfirmHost />
      <Keyboard />
      <FocusKeeper />
      <SignIn />
    </>
  );
}

function Sidebar({ name }: { name: string }) {
  const chosen = useValue(theme);
  const { data: info } = useQuery<Info>("/v1/info");
  const [icon, words] = THEMES[chosen];
  return (
    <aside class="sidebar">
      <a class="brand" href="#/">
        <Icon name="graphs" />
        rgrl
      </a>
      <nav aria-label="Main">
        {VIEWS.map(([path, title, icon]) => (
          <a key={path} href={`#/${path}`} aria-current={path === name ? "page" : undefined}>
            <Icon name={icon} />
            <span>{title}</span>
          </a>
        ))}
      </nav>
      <div class="sidebar-foot">
        <span class="version">{info ? `Version ${info.version.split("+")[0]}` : ""}</span>
        <button type="button" class="icon-button" aria-label={words} title={words} onClick={nextTheme}>
          <Icon name={icon} />
        </button>
        <button type="button" class="icon-button" aria-label="Shortcuts" title="Shortcuts" onClick={showShortcuts}>
          <kbd>?</kbd>
        </button>
      </div>
    </aside>
  );
}

/** Its room is there always, so that nothing jumps when the server goes and comes. */
function Lost() {
  const here = useValue(reached);
  return (
    <div class="lost" role="status">
      {!here && "The server does not answer. What is shown is what it said last; the page goes on asking."}
    </div>
  );
}
