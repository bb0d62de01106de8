import { render } from "preact";

import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/components.css";

import { App } from "./app";

render(<App />, document.getElementById("page")!);
